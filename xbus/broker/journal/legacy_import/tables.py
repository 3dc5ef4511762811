"""The tables of xbus.broker 0.2.0, as far as they are read."""

from sqlalchemy import column, table

service = table("service", column("id"), column("name"), column("is_consumer"), column("description"))

event_type = table("event_type", column("id"), column("name"), column("description"), column("immediate_reply"))

event_node = table("event_node", column("id"), column("service_id"), column("type_id"), column("is_start"))

event_node_rel = table("event_node_rel", column("parent_id"), column("child_id"))

role = table("role", column("login"), column("password"), column("service_id"))

emitter_profile = table("emitter_profile", column("id"), column("name"), column("display_name"), column("description"))

# Its "event_id" is that of an event type.
emitter_profile_event_type_rel = table("emitter_profile_event_type_rel", column("event_id"), column("profile_id"))

emitter = table("emitter", column("login"), column("password"), column("profile_id"))

user = table(
    "user",
    column("user_id"),
    column("user_name"),
    column("email_address"),
    column("display_name"),
    column("password"),
)

user_group = table("user_group", column("user_id"), column("group_id"))

group_permission = table("group_permission", column("group_id"), column("permission_id"))

permission = table("permission", column("permission_id"), column("permission_name"))

input_descriptor = table(
    "input_descriptor", column("id"), column("name"), column("descriptor"), column("descriptor_mimetype")
)

emission_profile = table(
    "emission_profile", column("name"), column("owner_id"), column("input_descriptor_id"), column("encoding")
)

event = table("event", column("execution_state"))

event_consumer_inactive_rel = table("event_consumer_inactive_rel", column("event_id"), column("retry_event_id"))

MEMBERSHIPS = (user_group, group_permission)
"""A broker without users may lack them."""

TABLES = (
    *(service, event_type, event_node, event_node_rel, role),
    *(emitter_profile, emitter_profile_event_type_rel, emitter),
    *(user, permission, input_descriptor, emission_profile),
    *(event, event_consumer_inactive_rel),
)

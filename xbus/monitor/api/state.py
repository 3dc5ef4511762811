"""The state of the bus for programs: its health, its roles and event types, and why a role or an emitter is so."""

from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Path

from xbus.admin.objects import of_finding, of_role, of_type
from xbus.broker.journal.operations.event_types import count_types
from xbus.broker.journal.operations.roles import list_roles
from xbus.monitor.api.objects import ObjectResponse, answer, answer_list
from xbus.monitor.requests import TheBus, TheVisitor

router = APIRouter(tags=["state"], default_response_class=ObjectResponse)

Login = Annotated[str, Path(max_length=255)]


@router.get("/health", operation_id="tell_health")
async def health(bus: TheBus, _: TheVisitor) -> ObjectResponse:
    """Tell how front and back are; null for one that does not answer."""
    front, back = await bus.broker.health_of_both()
    return answer({"front": front, "back": back})


@router.get("/roles", operation_id="list_roles")
def roles(bus: TheBus, _: TheVisitor) -> ObjectResponse:
    """List the roles: their state, their work, and how far they lag behind."""
    now = bus.now()
    found = bus.read(list_roles)
    days = bus.config.journal.owed_days
    return answer_list(of_role(role, "owed_too_long" if role.owes_too_long(days, now) else None, now) for role in found)


@router.get("/roles/{login:path}/why", operation_id="explain_role")
def why_role(bus: TheBus, _: TheVisitor, login: Login) -> ObjectResponse:
    """Explain how a role is."""
    return answer_list(map(of_finding, bus.inquiry().role(login)))


@router.get("/emitters/{login:path}/why", operation_id="explain_emitter")
def why_emitter(bus: TheBus, _: TheVisitor, login: Login) -> ObjectResponse:
    """Explain how an emitter is."""
    return answer_list(map(of_finding, bus.inquiry().emitter(login)))


@router.get("/types", operation_id="list_types")
def types(bus: TheBus, _: TheVisitor) -> ObjectResponse:
    """List the event types with what the journal has of them, and the events of the last hour."""
    now = bus.now()
    counts = bus.read(lambda connection: count_types(connection, now - timedelta(hours=1)))
    return answer_list(of_type(each) for each in counts.types)

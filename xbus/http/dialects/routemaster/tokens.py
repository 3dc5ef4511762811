"""Make, list and revoke the API tokens of clients, with the token of a registrar: the root key, as Routemaster says."""

import secrets
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response

from xbus.errors import Refused
from xbus.http.bodies import off_loop, read_json
from xbus.http.dialects.gateway import Gateway, JsonAnswer, Operation
from xbus.http.dialects.routemaster.answers import emptily, nothing
from xbus.http.request_tags import token_of
from xbus.rpc.provisioning.messages import ClientTokenMap
from xbus.rpc.shapes import AnswerReader

NAME_BYTES = 6
"""Bytes of the name of a client that gets one from us. Fewer let two clients get the same name."""

_TOKENS = AnswerReader("xbus.list_tokens", list[ClientTokenMap])
_TOKEN = AnswerReader("xbus.new_token", str)


@emptily
async def _list(gateway: Gateway, request: Request) -> Response:
    found = _TOKENS.read(await gateway.front.call(token_of(request.headers), "xbus.list_tokens"))
    if not found:
        return nothing()
    return JsonAnswer([{"name": each["client"], "token": each["hash"]} for each in found])


@emptily
async def _add(gateway: Gateway, request: Request) -> Response:
    token = token_of(request.headers)
    await gateway.front.check(token)
    body = gateway.body(request)
    try:
        text = await body.json_text()
        # As the document's own example for curl asks, whose client has no name.
        wanted = await off_loop(read_json, text) if text else {"name": f"client-{secrets.token_hex(NAME_BYTES)}"}
    finally:
        body.close()
    if not isinstance(wanted, dict) or not isinstance(wanted.get("name"), str):
        raise Refused("the body is no map with a name", "send the name of the client", code="bad_body")
    chosen = wanted.get("token")
    if not isinstance(chosen, str | None):
        raise Refused("the token is no text", "send a text, or no token", code="bad_token")
    made = _TOKEN.read(await gateway.front.call(token, "xbus.new_token", wanted["name"], chosen))
    return JsonAnswer({"name": wanted["name"], "token": made}, HTTPStatus.CREATED)


@emptily
async def _revoke(gateway: Gateway, request: Request) -> Response:
    await gateway.front.call(token_of(request.headers), "xbus.revoke_token", request.path_params["token"])
    return nothing()


OPERATIONS = (
    Operation(
        "GET",
        "/api_tokens",
        "List the API tokens of clients, as at Routemaster, with their hashes in the place of the tokens.",
        _list,
        {200: "A list of maps of name and token, which is the hash.", 204: "There is none."},
        ("token_missing", "clients_not_allowed"),
    ),
    Operation(
        "POST",
        "/api_tokens",
        "Make an API token for a client, as at Routemaster. Without a body the client gets a name from us.",
        _add,
        {201: "A map of name and token. Nobody can read the token again."},
        ("token_missing", "clients_not_allowed", "bad_body", "bad_name", "bad_token", "name_taken", "token_taken"),
        ("application/json",),
    ),
    Operation(
        "DELETE",
        "/api_tokens/{token}",
        "Revoke an API token, or the one with this hash, as at Routemaster.",
        _revoke,
        {204: "There is no such token any more."},
        ("token_missing", "clients_not_allowed"),
    ),
)

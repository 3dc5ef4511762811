"""What the worker and the consumer of 2016 have in common: who they are, what they note, how they misbehave."""

import argparse
import asyncio
import json
import os

import aiozmq
from aiozmq import rpc


def tell(**what):
    print(json.dumps(what), flush=True)


class Recipient(rpc.AttrHandler):

    def __init__(self, options):
        self.options = options
        self.client = None
        self.token = None
        self.items = 0

    @rpc.method
    @asyncio.coroutine
    def get_metadata(self) -> dict:
        yield from self.note('get_metadata')
        return {
            'name': self.options.login,
            'version': 0.1,
            'api_version': 0.1,
            'host': 'here',
            'start_date': '2016-01-01T00:00:00',
            'local_time': '2016-01-01T00:00:00',
        }

    @rpc.method
    @asyncio.coroutine
    def ping(self, token: str) -> str:
        yield from asyncio.sleep(0)
        return token

    @rpc.method
    @asyncio.coroutine
    def has_clearing(self) -> list:
        yield from self.note('has_clearing')
        return False, None

    @rpc.method
    @asyncio.coroutine
    def has_immediate_reply(self) -> list:
        yield from self.note('has_immediate_reply')
        return bool(self.options.replies_to), self.options.replies_to

    @rpc.method
    @asyncio.coroutine
    def start_event(self, envelope_id: str, event_id: str, type_name: str):
        refusal = yield from self.note('start_event', envelope_id, event_id, type_name)
        return refusal or (True, None)

    @rpc.method
    @asyncio.coroutine
    def send_item(self, envelope_id: str, event_id: str, indices: list, data: bytes):
        self.items += 1
        if self.items == self.options.die_at:
            os._exit(1)
        refusal = yield from self.note('send_item', envelope_id, event_id, indices, data.decode('latin-1'))
        return refusal or (True, self.answer_item(indices, data))

    @rpc.method
    @asyncio.coroutine
    def end_event(self, envelope_id: str, event_id: str):
        refusal = yield from self.note('end_event', envelope_id, event_id)
        self.event_ended()
        return refusal or (True, self.options.reply)

    @rpc.method
    @asyncio.coroutine
    def end_envelope(self, envelope_id: str):
        refusal = yield from self.note('end_envelope', envelope_id)
        return refusal or (True, None)

    @rpc.method
    @asyncio.coroutine
    def stop_envelope(self, envelope_id: str) -> bool:
        yield from self.note('stop_envelope', envelope_id)
        return True

    def answer_item(self, indices, data):
        return None

    def event_ended(self):
        pass

    @asyncio.coroutine
    def note(self, verb, *args):
        tell(verb=verb, args=args)
        yield from asyncio.sleep(0)
        if verb == self.options.hang:
            yield from asyncio.sleep(3600)
        if verb == self.options.fail:
            raise ValueError('this program fails')
        if verb == self.options.refuse:
            return False, [([0], 'no such client')]


@asyncio.coroutine
def serve(recipient, options):
    service = yield from rpc.serve_rpc(recipient, bind='tcp://127.0.0.1:*')
    uri = next(iter(service.transport.bindings()))
    recipient.client = yield from rpc.connect_rpc(connect=options.back)
    recipient.token = yield from recipient.client.call.login(options.login, options.password)
    registered = yield from recipient.client.call.register_node(recipient.token, uri)
    tell(registered=registered)
    yield from service.wait_closed()


def main(kind):
    parser = argparse.ArgumentParser()
    parser.add_argument('back')
    parser.add_argument('login')
    parser.add_argument('password')
    parser.add_argument('--refuse', metavar='VERB')
    parser.add_argument('--fail', metavar='VERB')
    parser.add_argument('--die-at', metavar='ITEM', type=int)
    parser.add_argument('--hang', metavar='VERB', help='never answer this')
    parser.add_argument('--reply')
    parser.add_argument('--replies-to', metavar='TYPE', action='append', default=[])
    options = parser.parse_args()
    asyncio.set_event_loop_policy(aiozmq.ZmqEventLoopPolicy())
    asyncio.get_event_loop().run_until_complete(serve(kind(options), options))

"""An emitter of 2016: envelopes of one event each, one after the other or some at once."""

import argparse
import asyncio
import json

import aiozmq
from aiozmq import rpc


def tell(**what):
    print(json.dumps(what), flush=True)


@asyncio.coroutine
def emit(client, token, options, number):
    envelope_id = yield from client.call.start_envelope(token)
    event_id = yield from client.call.start_event(token, envelope_id, options.type, options.items)
    items = [('%d.%d' % (number, item)).encode() for item in range(options.items)]
    accepted = []
    for start in range(0, len(items), options.in_flight):
        calls = [
            client.call.send_item(token, envelope_id, event_id, item)
            for item in items[start:start + options.in_flight]
        ]
        accepted += yield from asyncio.gather(*calls)
    if options.cancel:
        cancelled = yield from client.call.cancel_envelope(token, envelope_id)
        tell(envelope=envelope_id, number=number, accepted=sum(accepted), cancelled=cancelled)
        return
    ended, reply = yield from client.call.end_event(token, envelope_id, event_id)
    sealed = yield from client.call.end_envelope(token, envelope_id)
    tell(
        envelope=envelope_id, event=event_id, number=number, accepted=sum(accepted),
        ended=ended, reply=reply, sealed=sealed,
    )


@asyncio.coroutine
def run(options):
    client = yield from rpc.connect_rpc(connect=options.front)
    token = yield from client.call.login(options.login, options.password)
    for start in range(0, options.envelopes, options.at_once):
        some = range(start, min(start + options.at_once, options.envelopes))
        yield from asyncio.gather(*[emit(client, token, options, number) for number in some])
    out = yield from client.call.logout(token)
    tell(logged_out=out)
    client.close()
    yield from client.wait_closed()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('front')
    parser.add_argument('login')
    parser.add_argument('password')
    parser.add_argument('--type', default='test_event')
    parser.add_argument('--envelopes', type=int, default=1)
    parser.add_argument('--at-once', type=int, default=1, help='envelopes at the same time')
    parser.add_argument('--items', type=int, default=1, help='of each envelope')
    parser.add_argument('--in-flight', type=int, default=1, help='items at the same time')
    parser.add_argument('--cancel', action='store_true')
    options = parser.parse_args()
    asyncio.set_event_loop_policy(aiozmq.ZmqEventLoopPolicy())
    asyncio.get_event_loop().run_until_complete(run(options))


if __name__ == '__main__':
    main()

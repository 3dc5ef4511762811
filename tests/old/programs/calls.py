"""A client of 2016 that makes the calls of a file, one JSON list a line, and tells what came back.

A line is ``[name, verb, argument, ...]``: the answer is called ``name`` from then on, and ``{"$": name}`` as an argument
stands for it; ``{"bytes": text}``, ``{"date": text}``, ``{"datetime": text}``, ``{"time": text}`` and ``{"days": number}``
stand for what JSON has no word for.
"""

import argparse
import asyncio
import datetime
import json

import aiozmq
from aiozmq import rpc

MAKE = {
    'bytes': lambda text: text.encode('latin-1'),
    'date': lambda text: datetime.datetime.strptime(text, '%Y-%m-%d').date(),
    'datetime': lambda text: datetime.datetime.strptime(text, '%Y-%m-%d %H:%M'),
    'time': lambda text: datetime.datetime.strptime(text, '%H:%M').time(),
    'days': datetime.timedelta,
}


def make(argument, answers):
    if isinstance(argument, list):
        return [make(part, answers) for part in argument]
    if not isinstance(argument, dict) or len(argument) != 1:
        return argument
    (kind, value), = argument.items()
    return answers[value] if kind == '$' else MAKE[kind](value)


@asyncio.coroutine
def run(options):
    client = yield from rpc.connect_rpc(connect=options.address)
    answers = {}
    with open(options.calls) as lines:
        for line in lines:
            name, verb, *arguments = json.loads(line)
            try:
                call = getattr(client.call, verb)(*[make(argument, answers) for argument in arguments])
                answers[name] = yield from asyncio.wait_for(call, 90)
                told = {'name': name, 'answer': answers[name]}
            except Exception as error:
                told = {'name': name, 'error': type(error).__name__}
            print(json.dumps(told), flush=True)
    client.close()
    yield from client.wait_closed()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('address')
    parser.add_argument('calls')
    options = parser.parse_args()
    asyncio.set_event_loop_policy(aiozmq.ZmqEventLoopPolicy())
    asyncio.get_event_loop().run_until_complete(run(options))


if __name__ == '__main__':
    main()

"""A program around xbus.file_emitter 0.1.2: it sends files, each with a descriptor, in one envelope."""

import argparse
import asyncio
import json

import aiozmq
from xbus.file_emitter import FileEmitter


@asyncio.coroutine
def run(options, loop):
    descriptors = []
    for path in options.descriptors:
        with open(path) as file:
            descriptors.append(file.read())
    emitter = FileEmitter(options.front, options.login, options.password, descriptors, loop=loop)
    yield from emitter.login()
    files = []
    for named in options.files:
        path, name = named.split('=')
        # lxml wants bytes, csv wants text.
        files.append((open(path, 'rb' if path.endswith('.xml') else 'r'), name or None))
    envelope_id = yield from emitter.send_files(files)
    print(json.dumps({'envelope': envelope_id}), flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('front')
    parser.add_argument('login')
    parser.add_argument('password')
    parser.add_argument('--descriptor', dest='descriptors', action='append')
    parser.add_argument('files', nargs='+', metavar='FILE=DESCRIPTOR')
    options = parser.parse_args()
    asyncio.set_event_loop_policy(aiozmq.ZmqEventLoopPolicy())
    loop = asyncio.get_event_loop()
    loop.run_until_complete(run(options, loop))


if __name__ == '__main__':
    main()

"""A worker of 2016: it puts its login behind each item, and says that it is ready again after each event."""

import asyncio

from recipient import Recipient, main


class Worker(Recipient):

    def answer_item(self, indices, data):
        return [(indices, data + b' ' + self.options.login.encode())]

    def event_ended(self):
        asyncio.ensure_future(self.client.call.ready(self.token))


if __name__ == '__main__':
    main(Worker)

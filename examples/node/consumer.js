// A consumer: it prints the names of clients, once all recipients have accepted the envelope.

import { main } from "./recipient.js";

const consumer = {
  items(envelope, items) {
    envelope.names = [...(envelope.names ?? []), ...items.map((item) => item.value.name)];
  },

  commit(envelope) {
    for (const name of envelope.names ?? []) console.log(`client: ${name}`);
  },

  // What was not committed is forgotten with the envelope.
  rollback() {},
};

await main("consumer", consumer, "consumer_role");

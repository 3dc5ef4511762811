// A worker: it writes the names of clients in capitals, and leaves out those without a name.

import { main } from "./recipient.js";

const worker = {
  items(envelope, items) {
    return items
      .filter((item) => item.value.name)
      .map((item) => ({ indices: item.indices, value: { name: item.value.name.toUpperCase() } }));
  },

  // It keeps nothing.
  commit() {},
  rollback() {},
};

await main("worker", worker, "worker_role");

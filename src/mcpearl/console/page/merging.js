// Figures of several workers as those of one server.

// The pulses of an interval as one. Each worker times the first calls of a second only, so its times stand
// for all of its calls: a busy worker counts for more than an idle one.
export function mergePulses(pulses) {
  const sum = (of) => pulses.reduce((total, each) => total + (of(each) ?? 0), 0);
  const totals = {};
  for (const each of pulses) {
    for (const [name, amount] of Object.entries(each.totals)) totals[name] = (totals[name] ?? 0) + amount;
  }
  const weighted = pulses.flatMap((each) => each.times.map((took) => [took / 1e6, Math.max(each.calls, 1) / each.times.length]));
  weighted.sort((one, other) => one[0] - other[0]);
  return {
    rate: sum((each) => each.rate), errors: sum((each) => each.errors), in_flight: sum((each) => each.in_flight),
    sessions: sum((each) => each.sessions), connections: sum((each) => each.connections),
    memory: sum((each) => each.memory), held: sum((each) => each.held), cpu: sum((each) => each.cpu),
    lag: Math.max(0, ...pulses.map((each) => each.lag)),
    p50: percentile(weighted, 0.5), p95: percentile(weighted, 0.95), p99: percentile(weighted, 0.99), totals,
  };
}

// The time that such a share of the calls did not exceed, from sorted pairs of time and weight; 0 if there are none.
function percentile(weighted, share) {
  let left = share * weighted.reduce((total, [, weight]) => total + weight, 0);
  for (const [took, weight] of weighted) {
    left -= weight;
    if (left < 0) return took;
  }
  return weighted.at(-1)?.[0] ?? 0;
}

// The rows of all workers, each with the number of its worker.
export function joinRows(events) {
  return {
    rows: events.flatMap((event) => event.rows.map((row) => ({ ...row, worker: event.worker }))),
    all: events.reduce((total, event) => total + (event.all ?? event.rows.length), 0),
  };
}

// Of each bound, the worker that is nearest to it, and how often all of them reached it.
export function mergeBounds(events) {
  const found = new Map();
  const share = (row) => row.limit ? row.used / row.limit : -1;
  for (const row of joinRows(events).rows) {
    const known = found.get(row.name);
    const reached = row.reached + (known?.reached ?? 0);
    const detail = row.detail ?? known?.detail;
    found.set(row.name, { ...(known && share(known) >= share(row) ? known : row), reached, detail });
  }
  return [...found.values()];
}

export function mergeTasks(events) {
  const states = {};
  for (const event of events) {
    for (const [state, amount] of Object.entries(event.states)) states[state] = (states[state] ?? 0) + amount;
  }
  return { states, waiting: events.reduce((total, event) => total + event.waiting, 0), rows: joinRows(events).rows };
}

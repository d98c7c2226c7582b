/** One state, one reducer, listeners told once per change. */

/** @typedef {import('../core/types.js').State} State */
/** @typedef {import('../core/types.js').Action} Action */

/**
 * @param {(state: State, action: Action) => State} reduce
 * @param {State} initial
 */
export function createStore(reduce, initial) {
  let state = initial;
  /** @type {((state: State) => void)[]} */
  const listeners = [];
  return {
    get: () => state,
    /** @param {(state: State) => void} listener */
    subscribe: (listener) => void listeners.push(listener),
    /** @param {Action} action */
    dispatch(action) {
      const next = reduce(state, action);
      if (next === state) return;
      state = next;
      for (const listener of listeners) listener(state);
    },
  };
}

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Patience, PATIENCE_MS } from '../../core/patience.js';

test('a first call that finds nobody is not tried again', () => {
  for (const code of ['server-down', 'connect-timeout', 'ice-failed', 'server-http', 'auth', 'key-wrong', 'key-busy', 'expired']) {
    assert.equal(new Patience().after(code, null, 0), null, code);
  }
});

test('a call is waited for after whatever passes', () => {
  for (const code of ['busy', 'too-often', 'server-starting', 'server-stopping', 'dropped']) {
    assert.deepEqual(new Patience().after(code, null, 0), { code, pauseMs: 500 });
  }
});

test('pauses grow, and are what the server says where it does', () => {
  const patience = new Patience();
  const pauses = [null, null, null, null, 7000, null].map((wish) => patience.after('busy', wish, 0)?.pauseMs);
  assert.deepEqual(pauses, [500, 1000, 2000, 4000, 7000, 4000]);
});

test('a server that is restarting may be away, and is still said to be restarting', () => {
  const patience = new Patience();
  const told = (code, now) => patience.after(code, null, now)?.code;
  assert.equal(told('dropped', 0), 'dropped');
  assert.equal(told('server-down', 1000), 'server-down');
  assert.equal(told('server-stopping', 2000), 'server-stopping');
  for (const code of ['server-down', 'connect-timeout', 'ice-failed', 'server-http']) {
    assert.equal(told(code, 100_000), 'server-stopping', code);
  }
  assert.equal(told('server-starting', 110_000), 'server-starting');
  assert.equal(told('busy', 120_000), 'busy');
});

test('a server that was there is looked for three minutes long', () => {
  const patience = new Patience();
  patience.after('dropped', null, 0);
  assert.ok(patience.after('server-down', null, PATIENCE_MS - 1));
  assert.equal(patience.after('server-down', null, PATIENCE_MS), null);
});

test('a server that answers is waited for as long as it says so', () => {
  const patience = new Patience();
  for (let now = 0; now < 10 * PATIENCE_MS; now += PATIENCE_MS / 2) assert.ok(patience.after('server-starting', null, now));
});

test('nobody waits for a key', () => {
  const patience = new Patience();
  patience.after('dropped', null, 0);
  for (const code of ['auth', 'key-wrong']) assert.equal(patience.after(code, null, 1000), null);
});

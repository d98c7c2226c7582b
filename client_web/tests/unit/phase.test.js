import assert from 'node:assert/strict';
import { test } from 'node:test';
import { nextPhase, NEXT, phaseWords, shownHealth, spelledDuration } from '../../core/phase.js';
import { deadline } from '../../core/reducer.js';
import { problem } from '../../core/problems.js';
import { Play } from './play.js';

test('a call goes from idle over asking and connecting to listening', () => {
  const play = new Play();
  const seen = [play.state.phase];
  for (const action of [{ type: 'start', mode: 'voice' }, { type: 'micGranted' }, { type: 'connecting', epoch: 1 }]) {
    seen.push(play.do(action).state.phase);
  }
  seen.push(play.server('session.created', { session: {} }).state.phase);
  assert.deepEqual(seen, ['idle', 'asking', 'connecting', 'connecting', 'listening']);
});

test('a text call asks for nothing', () => {
  const play = new Play().do({ type: 'start', mode: 'text' });
  assert.equal(play.state.phase, 'connecting');
});

test('a voice turn goes over user speaking, thinking and speaking back to listening', () => {
  const play = new Play().connect();
  const seen = [];
  const step = (type, fields) => seen.push(play.server(type, fields).state.phase);
  step('input_audio_buffer.speech_started', { item_id: 'u' });
  step('input_audio_buffer.speech_stopped', { item_id: 'u' });
  play.answer('a', 'Hello there.');
  seen.push(play.state.phase);
  step('output_audio_buffer.stopped', { response_id: 'resp_a' });
  assert.deepEqual(seen, ['userSpeaking', 'thinking', 'assistantSpeaking', 'listening']);
});

test('response.done does not end speaking while the buffer plays', () => {
  const play = new Play().connect().answer('a', 'Hello there.').done('a');
  assert.equal(play.state.phase, 'assistantSpeaking');
});

test('speech while listening is no interruption', () => {
  const play = new Play().connect().answer('a', 'Hi.').done('a').server('output_audio_buffer.stopped', { response_id: 'resp_a' });
  play.server('input_audio_buffer.speech_started', { item_id: 'u' });
  assert.equal(play.state.phase, 'userSpeaking');
  assert.equal(play.row('a').status, 'done');
});

test('interrupted gives way to user speaking after 0.8 s', () => {
  const play = new Play().connect().answer('a', 'Hello there.');
  play.server('input_audio_buffer.speech_started', { item_id: 'u' });
  assert.equal(play.state.phase, 'interrupted');
  assert.equal(deadline(play.state), play.now + 800);
  assert.equal(play.wait(800).state.phase, 'userSpeaking');
});

test('stop leads through interrupted to listening', () => {
  const play = new Play().connect().answer('a', 'Hello there.').do({ type: 'stop' });
  assert.equal(play.state.phase, 'interrupted');
  assert.equal(play.row('a').status, 'stopped');
  assert.equal(play.wait(800).state.phase, 'listening');
});

test('an empty turn without an answer returns to listening with a quiet note', () => {
  const play = new Play().connect().userTurn('u', null, '');
  assert.equal(play.wait(3999).state.phase, 'thinking');
  assert.equal(play.wait(1).state.phase, 'listening');
  assert.match(phaseWords(play.state, play.now).hint, /didn’t catch/);
});

test('no wait for an answer is without an end', () => {
  const play = new Play().connect().userTurn('u', null, 'hello');
  assert.equal(play.wait(30000).state.phase, 'listening');
});

test('a failed answer returns to listening and says so', () => {
  const play = new Play().connect().userTurn('u', null, 'hi').answer('a', 'So', { started: false });
  play.done('a', 'failed', { type: 'failed', error: { code: 'x', message: 'The model is out of memory.' } });
  assert.equal(play.state.phase, 'listening');
  assert.equal(play.state.note, 'The model is out of memory.');
  assert.equal(play.row('a').status, 'failed');
});

test('a text answer ends the thinking when it is done', () => {
  const play = new Play().connect('text').do({ type: 'textSent', id: 't', text: 'hi', date: 0 });
  play.server('response.created', { response: { id: 'r' } });
  play.server('response.output_text.delta', { response_id: 'r', item_id: 'a', delta: 'Hello.' });
  play.server('response.done', { response: { id: 'r', status: 'completed', output: [] } });
  assert.equal(play.state.phase, 'listening');
});

test('an out-of-band response changes nothing', () => {
  const play = new Play().connect();
  play.server('response.created', { response: { id: 'r', conversation_id: null } });
  assert.equal(play.state.phase, 'listening');
});

test('events of an earlier connection are dropped', () => {
  const play = new Play().connect();
  play.do({ type: 'server', epoch: 0, date: 0, loudAt: null, event: { type: 'input_audio_buffer.speech_started', item_id: 'u' } });
  assert.equal(play.state.phase, 'listening');
});

test('unknown events change nothing at all', () => {
  const play = new Play().connect();
  const before = play.state;
  for (const type of ['rate_limits.updated', 'mcp_list_tools.completed', 'toString', 'vendor.thing']) play.server(type);
  assert.equal(play.state, before);
});

test('a call that waits says for what', () => {
  const play = new Play().connect();
  for (const [code, title] of [
    ['dropped', 'Connection lost'],
    ['server-down', 'Connection lost'],
    ['server-stopping', 'The server is being updated'],
    ['server-starting', 'The server is being updated'],
    ['busy', 'All places are taken'],
  ]) {
    play.do({ type: 'wait', problem: problem(code) });
    assert.equal(play.state.phase, 'reconnecting');
    assert.equal(play.state.problem, null);
    assert.equal(phaseWords(play.state, play.now).title, title);
  }
});

test('a first call that waits keeps the microphone and shows its problem', () => {
  const play = new Play().do({ type: 'start', mode: 'voice' }).do({ type: 'micGranted' }).do({ type: 'connecting', epoch: 1 });
  play.do({ type: 'wait', problem: problem('server-stopping', { retryAt: 3000 }) });
  assert.equal(play.state.phase, 'error');
  assert.equal(play.state.mic, 'live');
  assert.equal(phaseWords(play.state, play.now).title, 'Waiting');
});

test('a call that was lost for good is continued by the next, one that was ended is not', () => {
  const lost = new Play().connect().do({ type: 'wait', problem: problem('dropped') }).do({ type: 'fail', problem: problem('dropped') });
  assert.equal(lost.state.fresh, false);
  assert.equal(lost.do({ type: 'start', mode: 'voice' }).do({ type: 'wait', problem: problem('busy') }).state.fresh, false);
  assert.equal(lost.do({ type: 'hangUp' }).state.fresh, true);
  assert.equal(new Play().connect().do({ type: 'fail', problem: problem('expired') }).state.fresh, true);
});

test('that the server is about to stop is said in the quiet line, and nothing else changes', () => {
  const play = new Play().connect().answer('a', 'Hello there.');
  const before = play.state;
  play.server('error', { event_id: 'e', error: { type: 'server_error', code: 'server_shutting_down', message: 'x' } });
  assert.deepEqual(play.state, { ...before, stopping: true });
  const { title, hint } = phaseWords(play.state, play.now);
  assert.equal(title, 'Speaking');
  assert.match(hint, /about to be updated/);
  assert.equal(shownHealth(play.state), 'stopping');
  play.do({ type: 'hangUp' });
  assert.equal(play.state.stopping, false);
});

test('how the server is agrees with what is waited for', () => {
  const play = new Play().connect().do({ type: 'health', health: 'ready' });
  assert.equal(shownHealth(play.state), 'ready');
  for (const [code, health] of [
    ['dropped', 'unknown'],
    ['server-down', 'down'],
    ['server-stopping', 'stopping'],
    ['server-starting', 'loading'],
    ['busy', 'ready'],
  ]) {
    play.do({ type: 'wait', problem: problem(code) });
    assert.equal(shownHealth(play.state), health, code);
  }
  play.do({ type: 'wait', problem: problem('server-stopping') }).do({ type: 'health', health: 'down' });
  assert.equal(shownHealth(play.state), 'stopping');
});

test('a server that did not answer is not called ready until it says so', () => {
  const play = new Play().do({ type: 'health', health: 'ready' }).do({ type: 'start', mode: 'text' });
  play.do({ type: 'fail', problem: problem('server-down') });
  assert.equal(shownHealth(play.state), 'down');
  assert.equal(shownHealth(play.do({ type: 'health', health: 'ready' }).state), 'ready');
});

test('a lost connection is reconnected with rows and the length of the call kept', () => {
  const play = new Play().connect().userTurn('u', null, 'hello');
  const callAt = play.state.callAt;
  play.now += 5000;
  play.do({ type: 'wait', problem: problem('dropped') });
  assert.equal(play.state.phase, 'reconnecting');
  play.epoch = 2;
  play.do({ type: 'connecting', epoch: 2 }).server('session.created', { session: {} });
  assert.equal(play.state.phase, 'listening');
  assert.deepEqual(play.ids, ['u']);
  assert.equal(play.state.callAt, callAt);
});

test('hanging up is legal in every phase of a call', () => {
  for (const phase of ['asking', 'connecting', 'reconnecting', 'listening', 'userSpeaking', 'thinking', 'assistantSpeaking', 'interrupted']) {
    assert.equal(nextPhase(phase, 'hangUp'), 'ended', phase);
  }
});

test('every phase has words, and every phase of the table is a phase', () => {
  const { state } = new Play();
  for (const phase of Object.keys(NEXT)) assert.ok(phaseWords({ ...state, phase }, 0).title, phase);
  for (const [phase, row] of Object.entries(NEXT)) for (const next of Object.values(row)) assert.ok(NEXT[next], `${phase} -> ${next}`);
});

test('the end says how long the call took', () => {
  const play = new Play().connect();
  play.now += 252000;
  play.do({ type: 'hangUp' });
  assert.equal(phaseWords(play.state, play.now).hint, '4 min 12 s');
  assert.equal(spelledDuration(9400), '9 s');
});

test('a failure shows its problem, and the next start clears it', () => {
  const play = new Play().do({ type: 'start', mode: 'voice' }).do({ type: 'fail', problem: problem('mic-denied') });
  assert.equal(play.state.phase, 'error');
  assert.equal(play.do({ type: 'start', mode: 'text' }).state.problem, null);
  assert.equal(play.state.phase, 'connecting');
});

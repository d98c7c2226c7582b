import assert from 'node:assert/strict';
import { test } from 'node:test';
import { place, newRow } from '../../core/conversation.js';
import { replay } from '../../core/replay.js';
import { Play } from './play.js';

const row = (id, fields = {}) => newRow({ id, role: 'user', ...fields });
const ids = (rows) => rows.map(({ id }) => id);

test('a row goes behind the one that the server names', () => {
  const rows = [row('a'), row('b'), row('c')];
  assert.deepEqual(ids(place(rows, row('x'), 'b')), ['a', 'b', 'x', 'c']);
  assert.deepEqual(ids(place(rows, row('x'), 'unknown')), ['a', 'b', 'c', 'x']);
  assert.deepEqual(ids(place(rows, row('x'), undefined)), ['a', 'b', 'c', 'x']);
  assert.deepEqual(ids(place(rows, row('x'), null)), ['x', 'a', 'b', 'c']);
});

test('the head of a new connection is behind the rows of the old one', () => {
  const rows = [row('old', { epoch: 1 }), row('new', { epoch: 2 })];
  assert.deepEqual(ids(place(rows, row('x', { epoch: 2 }), null)), ['old', 'x', 'new']);
});

test('a transcription that comes after the answer stays before it', () => {
  const play = new Play().connect().userTurn('u', null).answer('a', 'Sure.', { previous: 'u' }).done('a');
  play.transcribe('u', 'Can you help?');
  assert.deepEqual(play.ids, ['u', 'a']);
  assert.equal(play.row('u').text, 'Can you help?');
});

test('a turn committed late is put before the answer that was made without it', () => {
  const play = new Play().connect().answer('a', 'Sure.');
  play.server('input_audio_buffer.committed', { item_id: 'u', previous_item_id: null });
  assert.deepEqual(play.ids, ['u', 'a']);
});

test('transcription deltas grow one row, and the final text replaces them', () => {
  const play = new Play().connect().userTurn('u', null);
  const type = 'conversation.item.input_audio_transcription.delta';
  for (const delta of ['and ', 'to ', 'morow']) play.server(type, { item_id: 'u', content_index: 0, delta });
  assert.equal(play.row('u').text, 'and to morow');
  assert.equal(play.row('u').status, 'transcribing');
  play.transcribe('u', 'And tomorrow?');
  assert.equal(play.row('u').text, 'And tomorrow?');
  assert.equal(play.row('u').status, 'done');
  assert.equal(play.state.rows.length, 1);
});

test('a failed transcription stays on its row', () => {
  const play = new Play().connect().userTurn('u', null);
  play.server('conversation.item.input_audio_transcription.failed', { item_id: 'u', error: { message: 'x' } });
  assert.equal(play.row('u').status, 'failed');
  assert.equal(play.state.phase, 'thinking');
});

test('a typed turn appears at once and is settled by the server', () => {
  const play = new Play().connect().do({ type: 'textSent', id: 't', text: 'hello', date: 0 });
  assert.equal(play.row('t').status, 'sending');
  assert.equal(play.state.phase, 'thinking');
  const item = { id: 't', type: 'message', role: 'user', status: 'completed', content: [{ type: 'input_text', text: 'hello' }] };
  play.server('conversation.item.added', { previous_item_id: null, item });
  assert.equal(play.row('t').status, 'done');
  assert.equal(play.state.rows.length, 1);
});

test('typing into an answer cuts it and waits for the next', () => {
  const play = new Play().connect().answer('a', 'A long story about a fox that ran.');
  play.now += 1000;
  play.do({ type: 'textSent', id: 't', text: 'stop', date: 0 });
  assert.equal(play.row('a').status, 'interrupted');
  play.done('a', 'cancelled', { type: 'cancelled', reason: 'client_cancelled' });
  assert.equal(play.state.phase, 'thinking');
});

test('the shells of a response that was cancelled before it said anything are removed', () => {
  const play = new Play().connect().answer('a', '', { started: false });
  play.done('a', 'cancelled', { type: 'cancelled', reason: 'turn_detected' });
  assert.deepEqual(play.ids, []);
});

test('a deleted item is gone', () => {
  const play = new Play().connect().userTurn('u', null, 'hi').server('conversation.item.deleted', { item_id: 'u' });
  assert.deepEqual(play.ids, []);
});

test('a tool call is named while it runs and settled by its result', () => {
  const play = new Play().connect().server('response.created', { response: { id: 'r' } });
  const item = { id: 'f', type: 'function_call', name: 'get_weather', status: 'in_progress', arguments: '' };
  play.server('response.output_item.added', { response_id: 'r', item });
  play.server('conversation.item.added', { item });
  assert.equal(play.state.toolName, 'get_weather');
  assert.equal(play.row('f').status, 'streaming');
  play.server('conversation.item.added', { item: { id: 'o', type: 'function_call_output', call_id: 'c', output: 'rain' } });
  assert.equal(play.row('f').status, 'done');
  assert.equal(play.row('f').reason, 'rain');
});

test('an error event is said in words, and a cancel that came too late is not', () => {
  const play = new Play().connect();
  play.server('error', { event_id: 'e1', error: { code: 'response_cancel_not_active', message: 'Cancellation failed' } });
  assert.equal(play.state.rows.length, 0);
  play.server('error', { event_id: 'e2', error: { code: 'cannot_update_voice', message: 'Too late for a voice.' } });
  assert.match(play.row('e2').text, /Too late for a voice/);
  assert.equal(play.state.phase, 'listening');
});

test('what a new connection is told is only what was said and heard', () => {
  const rows = [
    row('u', { text: 'hi', epoch: 1 }),
    newRow({ id: 'a', role: 'assistant', text: 'Hello you there', voice: true, heard: 5, epoch: 1 }),
    newRow({ id: 'b', role: 'assistant', text: 'never played', voice: true, heard: 0, epoch: 1 }),
    newRow({ id: 'n', role: 'note', text: 'x', epoch: 1 }),
    row('now', { text: 'later', epoch: 2 }),
  ];
  const told = replay(rows, 2).map(({ item }) => [item.id, item.role, item.content[0].type, item.content[0].text]);
  assert.deepEqual(told, [
    ['u', 'user', 'input_text', 'hi'],
    ['a', 'assistant', 'output_text', 'Hello'],
  ]);
});

test('the second call is set apart from the first', () => {
  const play = new Play().connect().userTurn('u', null, 'hi').do({ type: 'hangUp' });
  play.epoch = 2;
  play.connect();
  assert.deepEqual(play.state.rows.map(({ role }) => role), ['user', 'note']);
});

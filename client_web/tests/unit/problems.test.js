import assert from 'node:assert/strict';
import { test } from 'node:test';
import { browserOf, CODES, httpCode, micCode, problem, timeoutCode } from '../../core/problems.js';
import { EventRing, redact } from '../../core/redact.js';
import { DEFAULTS, openingUpdate, readSettings, updateFor } from '../../core/settings.js';
import { silence, typedTurn } from '../../core/outgoing.js';
import { percentile } from '../../core/latency.js';

test('every problem says what happened and offers a way out', () => {
  for (const code of CODES) {
    const { title, cause, buttons } = problem(code, { browser: 'chrome', host: 'box:8080' });
    assert.ok(title && cause, code);
    assert.ok(buttons.length > 0 && buttons.every(({ label }) => label), code);
  }
});

test('a refused microphone is told apart from a closed question', () => {
  assert.equal(micCode({ name: 'NotAllowedError', message: 'Permission denied' }, 'denied'), 'mic-denied');
  assert.equal(micCode({ name: 'NotAllowedError', message: 'Permission dismissed' }, 'prompt'), 'mic-dismissed');
  assert.equal(micCode({ name: 'NotFoundError' }, ''), 'mic-missing');
  assert.equal(micCode({ name: 'NotReadableError' }, ''), 'mic-busy');
  assert.equal(micCode({ name: 'TypeError' }, ''), 'mic-failed');
});

test('an answer that is no call has a code by status and error code', () => {
  for (const code of ['pool_full', 'no_capacity']) assert.equal(httpCode(503, code), 'busy');
  assert.equal(httpCode(503, 'model_loading'), 'server-starting');
  assert.equal(httpCode(503, 'shutting_down'), 'server-stopping');
  assert.equal(httpCode(401, 'invalid_api_key'), 'auth');
  assert.equal(httpCode(401, 'invalid_api_key', true), 'key-wrong');
  assert.equal(httpCode(403, 'permission_denied'), 'auth');
  assert.equal(httpCode(403, 'origin_not_allowed'), 'server-http');
  assert.equal(httpCode(429, 'too_many_sessions'), 'key-busy');
  for (const code of ['rate_limit_exceeded', '']) assert.equal(httpCode(429, code), 'too-often');
  for (const code of ['no_media_port', 'call_ended', 'setup_timeout']) assert.equal(httpCode(503, code), 'server-http');
  assert.equal(httpCode(400, 'invalid_offer'), 'server-http');
  for (const status of [502, 503, 504]) assert.equal(httpCode(status, ''), 'server-down');
});

test('what the server itself said is the cause, where this page cannot know better', () => {
  const said = 'Nothing has happened in your session for 900 seconds.';
  for (const code of ['expired', 'server-http', 'key-busy', 'too-often']) {
    assert.equal(problem(code, { said }).cause, said);
    assert.ok(problem(code, { said: '' }).cause, code);
  }
  assert.notEqual(problem('busy', { said }).cause, said);
});

test('a connection that is too slow names the leg that hung', () => {
  assert.deepEqual(['offer', 'network', 'channel', 'session'].map(timeoutCode), [
    'connect-timeout',
    'ice-failed',
    'channel-timeout',
    'connect-timeout',
  ]);
});

test('the remedy names the controls of this browser', () => {
  assert.equal(browserOf('Mozilla/5.0 (X11; Linux x86_64; rv:153.0) Gecko/20100101 Firefox/153.0'), 'firefox');
  assert.equal(browserOf('Mozilla/5.0 AppleWebKit/537.36 Chrome/156.0 Safari/537.36'), 'chrome');
  assert.equal(browserOf('Mozilla/5.0 (iPhone) AppleWebKit/605 Version/18.0 Mobile Safari/604.1'), 'safari');
  assert.match(problem('mic-denied', { browser: 'firefox' }).remedy.join(' '), /crossed-out/);
});

test('stored settings that make no sense are the defaults', () => {
  assert.deepEqual(readSettings(null), DEFAULTS);
  assert.deepEqual(readSettings({ pause: 'forever', theme: 7, atOnce: 'yes', voice: 3, extra: 1 }), DEFAULTS);
  assert.equal(readSettings({ pause: 'long' }).pause, 'long');
});

test('a call opens with transcription, and with a pause or voice only if one was chosen', () => {
  assert.deepEqual(openingUpdate({ ...DEFAULTS }).session, {
    type: 'realtime',
    audio: { input: { transcription: { model: 'whisper-1' } } },
  });
  const { audio } = openingUpdate({ ...DEFAULTS, pause: 'long', voice: ' nova ' }).session;
  assert.deepEqual(audio.input.turn_detection, { type: 'server_vad', silence_duration_ms: 1000 });
  assert.deepEqual(audio.output, { voice: 'nova' });
});

test('only what the server must know is sent in the middle of a call', () => {
  assert.equal(updateFor({ theme: 'dark' }), null);
  assert.equal(updateFor({ pause: 'short' }).session.audio.input.turn_detection.silence_duration_ms, 300);
});

test('silence stops the making only while something is made, and the sound always', () => {
  const types = (state) => silence(state).map(({ type }) => type);
  assert.deepEqual(types({ activeResponse: null, playing: null }), []);
  assert.deepEqual(types({ activeResponse: null, playing: {} }), ['output_audio_buffer.clear']);
  assert.deepEqual(types({ activeResponse: 'r', playing: {} }), ['response.cancel', 'output_audio_buffer.clear']);
});

test('a typed turn is an item and the wish for an answer', () => {
  const [create, ask] = typedTurn('item_1', 'hi');
  assert.deepEqual(create.item, { id: 'item_1', type: 'message', role: 'user', content: [{ type: 'input_text', text: 'hi' }] });
  assert.deepEqual(ask, { type: 'response.create' });
});

test('the log keeps the last events and neither keys nor sound', () => {
  const ring = new EventRing(10);
  for (let at = 0; at < 50; at++) ring.add('client', { type: 'x', at }, at);
  assert.equal(ring.list().length, 10);
  assert.equal(ring.list().at(-1).event.at, 49);
  const safe = redact({ client_secret: 'ek_1', audio: 'AAAA', nested: [{ api_key: 'sk' }], text: 'stays' });
  assert.deepEqual(safe, { client_secret: '[hidden]', audio: '[4 characters]', nested: [{ api_key: '[hidden]' }], text: 'stays' });
});

test('percentiles go by the nearest rank', () => {
  assert.equal(percentile([], 0.5), null);
  assert.equal(percentile([3, 1, 2], 0.5), 2);
  assert.equal(percentile([1, 2, 3, 4], 0.95), 4);
});

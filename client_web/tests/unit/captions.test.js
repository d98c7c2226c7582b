import assert from 'node:assert/strict';
import { test } from 'node:test';
import { captionParts, learnedRate, wholeGraphemes, wholeWords } from '../../core/captions.js';
import { Play } from './play.js';

const TEXT = 'It is four degrees in Oslo right now, with light rain until the evening.';
const parts = (play, id = 'a') => captionParts(play.row(id), play.state, play.now);

test('nothing counts as heard before the sound starts', () => {
  const play = new Play().connect().answer('a', TEXT, { started: false });
  assert.deepEqual(parts(play), { heard: '', coming: TEXT, unheard: '' });
});

test('text is revealed at fifteen characters a second', () => {
  const play = new Play().connect().answer('a', TEXT);
  play.now += 1000;
  assert.equal(parts(play).heard, TEXT.slice(0, 15));
  play.now += 1000;
  assert.equal(parts(play).heard, TEXT.slice(0, 30));
});

test('everything is heard once the buffer has stopped', () => {
  const play = new Play().connect().answer('a', TEXT).done('a');
  play.now += 500;
  play.server('output_audio_buffer.stopped', { response_id: 'resp_a' });
  assert.deepEqual(parts(play), { heard: TEXT, coming: '', unheard: '' });
});

test('captions at once hide nothing', () => {
  const play = new Play().connect().answer('a', TEXT).do({ type: 'settings', patch: { atOnce: true } });
  assert.deepEqual(parts(play), { heard: TEXT, coming: '', unheard: '' });
});

test('the clock stops when the user speaks into the answer', () => {
  const play = new Play().connect().answer('a', TEXT);
  play.now += 1000;
  play.server('input_audio_buffer.speech_started', { item_id: 'u' });
  play.now += 3000;
  assert.equal(parts(play).heard, TEXT.slice(0, 15));
});

test('a barge-in strikes out what was not heard', () => {
  const play = new Play().connect().answer('a', TEXT);
  play.now += 1200;
  play.server('input_audio_buffer.speech_started', { item_id: 'u' });
  play.done('a', 'cancelled', { type: 'cancelled', reason: 'turn_detected' });
  play.server('output_audio_buffer.cleared', { response_id: 'resp_a' });
  play.server('conversation.item.truncated', { item_id: 'a', content_index: 0, audio_end_ms: 1200 });
  const { heard, unheard } = parts(play);
  assert.equal(heard, 'It is four degrees');
  assert.equal(heard + unheard, TEXT);
  assert.equal(play.row('a').status, 'interrupted');
});

test('what the server counts as heard overrules the estimate', () => {
  const play = new Play().connect().answer('a', TEXT);
  play.now += 1200;
  play.server('output_audio_buffer.cleared', { response_id: 'resp_a' });
  play.server('conversation.item.truncated', { item_id: 'a', content_index: 0, audio_end_ms: 1200 });
  const content = [{ type: 'output_audio', transcript: 'It is four' }];
  play.server('conversation.item.retrieved', { item: { id: 'a', role: 'assistant', status: 'incomplete', content } });
  assert.equal(parts(play).heard, 'It is four');
  assert.equal(parts(play).unheard, TEXT.slice('It is four'.length));
});

test('a cut after the generation had ended is marked as well', () => {
  const play = new Play().connect().answer('a', TEXT).done('a');
  play.now += 2000;
  play.server('output_audio_buffer.cleared', { response_id: 'resp_a' });
  assert.equal(play.row('a').status, 'interrupted');
  assert.equal(parts(play).heard, TEXT.slice(0, 30));
});

test('two items of one response share one clock', () => {
  const play = new Play().connect().answer('a', 'Ten chars.').answer('b', 'And more.', { started: false, response: 'resp_a' });
  play.now += 1000;
  assert.equal(parts(play, 'a').heard, 'Ten chars.');
  assert.equal(parts(play, 'b').heard, 'And m');
});

test('hanging up leaves what was not heard struck out', () => {
  const play = new Play().connect().answer('a', TEXT);
  play.now += 1000;
  play.do({ type: 'hangUp' });
  assert.equal(parts(play).unheard, TEXT.slice(15));
});

test('an emoji is never cut in half', () => {
  assert.equal(wholeGraphemes('ab👩‍🚀cd', 4), 2);
  assert.equal(wholeGraphemes('abc', 99), 3);
});

test('a cut keeps whole words, and stands where it is in scripts without spaces', () => {
  assert.equal(wholeWords('one two three', 10), 7);
  assert.equal(wholeWords('one', 2), 0);
  const chinese = '今天天气很好'.repeat(6);
  assert.equal(wholeWords(chinese, 30), 30);
});

test('the rate is learned from long answers only, and within reason', () => {
  assert.equal(learnedRate(15, 10, 500), 15);
  assert.equal(learnedRate(15, 200, 10000), 15 * 0.6 + 20 * 0.4);
  assert.equal(learnedRate(15, 1000, 2000), 15 * 0.6 + 26 * 0.4);
});

test('the first sound is timed from the last loud frame of the microphone', () => {
  const play = new Play().connect();
  play.server('input_audio_buffer.speech_started', { item_id: 'u' });
  play.now = 5000;
  play.do({ type: 'server', epoch: 1, date: 0, loudAt: 4500, event: { type: 'input_audio_buffer.speech_stopped', item_id: 'u' } });
  play.now = 5300;
  play.answer('a', TEXT);
  play.now = 5310;
  play.do({ type: 'firstSound' }).do({ type: 'firstSound' });
  assert.equal(play.row('a').firstSoundMs, 810);
  assert.deepEqual(play.state.latenciesMs, [810]);
});

/** Plays a script of actions against the reducer, with a clock that the test owns. */

import { initialState, reduce } from '../../core/reducer.js';
import { readSettings } from '../../core/settings.js';

export class Play {
  state = initialState(readSettings(null));
  now = 1000;
  epoch = 1;

  do(action) {
    this.state = reduce(this.state, { now: this.now, ...action });
    return this;
  }

  server(type, fields = {}) {
    return this.do({ type: 'server', epoch: this.epoch, date: 0, loudAt: null, event: { type, ...fields } });
  }

  wait(ms) {
    this.now += ms;
    return this.do({ type: 'tick' });
  }

  connect(mode = 'voice') {
    this.do({ type: 'start', mode });
    if (mode === 'voice') this.do({ type: 'micGranted' });
    return this.do({ type: 'connecting', epoch: this.epoch }).server('session.created', { session: { id: 'sess_1' } });
  }

  /** A user's turn, committed; `text` arrives only if given. */
  userTurn(id, previous, text) {
    this.server('input_audio_buffer.speech_started', { item_id: id });
    this.server('input_audio_buffer.speech_stopped', { item_id: id });
    this.server('input_audio_buffer.committed', { item_id: id, previous_item_id: previous });
    return text === undefined ? this : this.transcribe(id, text);
  }

  transcribe(id, transcript) {
    return this.server('conversation.item.input_audio_transcription.completed', { item_id: id, transcript });
  }

  /** An answer up to the start of its sound. */
  answer(id, text, { previous, started = true, response = `resp_${id}` } = {}) {
    const item = { id, type: 'message', role: 'assistant', status: 'in_progress', content: [] };
    this.server('response.created', { response: { id: response } });
    this.server('response.output_item.added', { response_id: response, item });
    this.server('conversation.item.added', { previous_item_id: previous, item });
    this.server('response.output_audio_transcript.delta', { response_id: response, item_id: id, delta: text });
    return started ? this.server('output_audio_buffer.started', { response_id: response }) : this;
  }

  done(id, status = 'completed', details = null) {
    return this.server('response.done', { response: { id: `resp_${id}`, status, status_details: details, output: [] } });
  }

  row(id) {
    return this.state.rows.find((row) => row.id === id);
  }

  get ids() {
    return this.state.rows.map(({ id }) => id);
  }
}

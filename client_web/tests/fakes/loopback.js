/**
 * A Realtime server inside the page: the far end of the peer connection, and a channel that a test
 * plays by hand. No Python, no models; run before main.js, as a classic script.
 *
 * It answers `POST v1/realtime/calls` with a real SDP answer of a second RTCPeerConnection, so that
 * ICE, DTLS, Opus and the data channel are the browser's own.
 */
(() => {
  const realFetch = window.fetch.bind(window);

  /** @typedef {{type: string, [key: string]: any}} WireEvent */

  class FakeServer {
    /** @type {WireEvent[]} What the page has sent, oldest first. */
    received = [];
    /** @type {{url: string, method: string}[]} */
    requests = [];
    /** Answers instead of a call: status and error body, taken one by one. @type {{status: number, code?: string, message?: string, retryAfter?: number}[]} */
    refusals = [];
    /** The call request never returns. */
    hang = false;
    /** The request fails as if nobody listened. */
    down = false;
    /** As readyz says it. */
    status = 'ready';
    /** What is kept of calls. */
    kept = { recording: false, transcripts: false };
    /** What pages are told to use. @type {RTCIceServer[]} */
    iceServers = [];
    /** session.created is sent by itself. */
    greets = true;
    /** Everything typed is answered by itself. */
    answers = false;
    calls = 0;
    /** @type {RTCPeerConnection|null} */
    #pc = null;
    /** @type {RTCDataChannel|null} */
    #channel = null;
    /** @type {GainNode|null} */
    #voice = null;
    #counter = 0;
    /** Ids of the conversation's items. @type {string[]} */
    #items = [];

    /**
     * @param {RequestInfo|URL} input
     * @param {RequestInit} [init]
     * @returns {Promise<Response>}
     */
    async fetch(input, init = {}) {
      const url = new URL(String(input instanceof Request ? input.url : input), document.baseURI);
      const method = init.method ?? 'GET';
      this.requests.push({ url: url.pathname, method });
      if (this.down && !url.pathname.endsWith('/hangup')) throw new TypeError('Failed to fetch');
      if (url.pathname.endsWith('/readyz')) return json(this.status === 'ready' ? 200 : 503, { status: this.status });
      if (url.pathname.endsWith('/client-config.json')) return json(200, { ice_servers: this.iceServers, version: 'fake', ...this.kept });
      if (url.pathname.endsWith('/notice.json')) return json(200, this.kept);
      if (url.pathname.endsWith('/hangup')) return new Response(null, { status: 200 });
      if (!url.pathname.endsWith('/v1/realtime/calls')) return realFetch(input, init);
      if (this.hang) return untilAborted(init.signal);
      const refusal = this.refusals.shift();
      if (refusal) {
        const { status, code = null, message = '', retryAfter } = refusal;
        /** @type {Record<string, string>} */
        const headers = retryAfter ? { 'Retry-After': String(retryAfter) } : {};
        return json(status, { error: { message, type: 'server_error', code, param: null } }, headers);
      }
      return this.#accept(String(init.body));
    }

    /** @param {string} offer */
    async #accept(offer) {
      this.calls++;
      this.#items = [];
      const pc = new RTCPeerConnection();
      this.#pc = pc;
      pc.ondatachannel = ({ channel }) => {
        this.#channel = channel;
        channel.onmessage = ({ data }) => this.#receive(JSON.parse(data));
        const greet = () => this.greets && this.send({ type: 'session.created', session: session() });
        if (channel.readyState === 'open') greet();
        else channel.onopen = greet;
      };
      await pc.setRemoteDescription({ type: 'offer', sdp: offer });
      const stream = this.#tone();
      const [transceiver] = pc.getTransceivers();
      if (transceiver) {
        transceiver.direction = transceiver.direction === 'recvonly' ? 'sendrecv' : 'sendonly';
        transceiver.sender.setStreams(stream);
        await transceiver.sender.replaceTrack(stream.getAudioTracks()[0] ?? null);
      }
      await pc.setLocalDescription();
      await gathered(pc);
      const headers = { 'Content-Type': 'application/sdp', Location: `/v1/realtime/calls/rtc_fake_${this.calls}` };
      const response = new Response(pc.localDescription?.sdp, { status: 201, headers });
      Object.defineProperty(response, 'url', { value: `${location.origin}/v1/realtime/calls` });
      return response;
    }

    /** A voice of two sines and a slow swell, silent until `speak(true)`. */
    #tone() {
      const context = new AudioContext();
      const voice = context.createGain();
      voice.gain.value = 0;
      const swell = context.createGain();
      swell.gain.value = 0.5;
      const rhythm = context.createOscillator();
      rhythm.frequency.value = 3.1;
      rhythm.connect(swell.gain);
      rhythm.start();
      for (const frequency of [180, 300]) {
        const sine = context.createOscillator();
        sine.frequency.value = frequency;
        sine.connect(swell);
        sine.start();
      }
      const out = context.createMediaStreamDestination();
      swell.connect(voice).connect(out);
      this.#voice = voice;
      return out.stream;
    }

    /** @param {boolean} on */
    speak(on) {
      if (this.#voice) this.#voice.gain.value = on ? 0.25 : 0;
    }

    /** @param {WireEvent} event */
    send(event) {
      this.#channel?.send(JSON.stringify({ event_id: this.id('event'), ...event }));
    }

    /** @param {{id: string}} item */
    #add(item) {
      if (!this.#items.includes(item.id)) this.#items.push(item.id);
      this.send({ type: 'conversation.item.added', previous_item_id: this.#before(item), item });
    }

    /** @param {{id: string}} item */
    #done(item) {
      this.send({ type: 'conversation.item.done', previous_item_id: this.#before(item), item });
    }

    /** @param {{id: string}} item */
    #before({ id }) {
      return this.#items[this.#items.indexOf(id) - 1] ?? null;
    }

    /** @param {string} kind */
    id(kind) {
      return `${kind}_${++this.#counter}`;
    }

    /** Break the connection as a dying server does. */
    drop() {
      this.#channel?.close();
      this.#pc?.close();
    }

    /** @param {WireEvent} event */
    #receive(event) {
      this.received.push(event);
      if (event.type === 'session.update') this.send({ type: 'session.updated', session: session(event.session) });
      if (event.type === 'conversation.item.create') {
        const item = { status: 'completed', object: 'realtime.item', ...event.item };
        this.#add(item);
        this.#done(item);
      }
      if (event.type === 'output_audio_buffer.clear') this.speak(false);
      if (event.type === 'response.create' && this.answers) this.reply('You typed, I talk.');
    }

    /**
     * The user speaks a turn: started, stopped, committed, transcribed.
     * @param {string} text
     * @returns {string} the item's id
     */
    hear(text) {
      const id = this.startSpeech();
      this.endSpeech(id);
      this.transcribe(id, text);
      return id;
    }

    startSpeech() {
      const id = this.id('item');
      this.send({ type: 'input_audio_buffer.speech_started', audio_start_ms: 0, item_id: id });
      return id;
    }

    /**
     * @param {string} id
     */
    endSpeech(id) {
      this.send({ type: 'input_audio_buffer.speech_stopped', audio_end_ms: 900, item_id: id });
      this.send({ type: 'input_audio_buffer.committed', previous_item_id: this.#items.at(-1) ?? null, item_id: id });
      const content = [{ type: 'input_audio', transcript: null }];
      const item = { id, type: 'message', role: 'user', status: 'completed', content };
      this.#add(item);
      this.#done(item);
    }

    /**
     * @param {string} id
     * @param {string} text
     */
    transcribe(id, text) {
      const type = 'conversation.item.input_audio_transcription';
      for (const delta of text.match(/\S+\s*/g) ?? []) this.send({ type: `${type}.delta`, item_id: id, content_index: 0, delta });
      this.send({ type: `${type}.completed`, item_id: id, content_index: 0, transcript: text, usage: { type: 'duration', seconds: 1 } });
    }

    /**
     * A spoken answer, generated in full and begun to play.
     * @param {string} text
     * @returns {{response: string, item: string}} ids, for `finish` and `bargeIn`
     */
    reply(text) {
      const response = this.id('resp');
      const item = this.id('item');
      const part = { response_id: response, item_id: item, output_index: 0, content_index: 0 };
      const shell = { id: item, type: 'message', role: 'assistant', status: 'in_progress', content: [] };
      this.send({ type: 'response.created', response: whole(response, 'in_progress') });
      this.send({ type: 'response.output_item.added', response_id: response, output_index: 0, item: shell });
      this.#add(shell);
      this.send({ type: 'response.content_part.added', ...part, part: { type: 'audio', transcript: '' } });
      for (const delta of text.match(/\S+\s*/g) ?? []) this.send({ type: 'response.output_audio_transcript.delta', ...part, delta });
      this.speak(true);
      this.send({ type: 'output_audio_buffer.started', response_id: response });
      return { response, item };
    }

    /**
     * Generation is over; the sound plays on.
     * @param {{response: string, item: string}} ids
     * @param {string} text
     */
    generated({ response, item }, text) {
      const content = [{ type: 'output_audio', transcript: text }];
      const done = { id: item, type: 'message', role: 'assistant', status: 'completed', content };
      const part = { response_id: response, item_id: item, output_index: 0, content_index: 0 };
      this.send({ type: 'response.output_audio_transcript.done', ...part, transcript: text });
      this.#done(done);
      this.send({ type: 'response.output_item.done', response_id: response, output_index: 0, item: done });
      this.send({ type: 'response.done', response: whole(response, 'completed', { output: [done], usage: USAGE }) });
    }

    /** @param {{response: string}} ids */
    played({ response }) {
      this.speak(false);
      this.send({ type: 'output_audio_buffer.stopped', response_id: response });
    }

    /**
     * The user talks into the answer.
     * @param {{response: string, item: string}} ids
     * @param {number} heardMs
     * @returns {string} the new user item
     */
    bargeIn({ response, item }, heardMs) {
      const id = this.startSpeech();
      const details = { type: 'cancelled', reason: 'turn_detected' };
      this.send({ type: 'response.done', response: whole(response, 'cancelled', { status_details: details, usage: USAGE }) });
      this.speak(false);
      this.send({ type: 'output_audio_buffer.cleared', response_id: response });
      this.send({ type: 'conversation.item.truncated', item_id: item, content_index: 0, audio_end_ms: heardMs });
      return id;
    }
  }

  const format = { type: 'audio/pcm', rate: 24_000 };
  const USAGE = {
    total_tokens: 0,
    input_tokens: 0,
    output_tokens: 0,
    input_token_details: { text_tokens: 0, audio_tokens: 0, image_tokens: 0, cached_tokens: 0 },
    output_token_details: { text_tokens: 0, audio_tokens: 0 },
  };

  /** @param {Record<string, any>} [changes] */
  function session(changes = {}) {
    const { input = {}, output = {} } = changes.audio ?? {};
    return {
      ...{ id: 'sess_fake', object: 'realtime.session', type: 'realtime', model: 'scripted', expires_at: 2_000_000_000 },
      ...{ output_modalities: ['audio'], instructions: '', tools: [], tool_choice: 'auto', max_output_tokens: 'inf' },
      ...{ tracing: null, truncation: 'auto', prompt: null, include: null },
      ...changes,
      audio: {
        input: { format, transcription: null, noise_reduction: null, turn_detection: null, ...input },
        output: { format, voice: 'tone', speed: 1, ...output },
      },
    };
  }

  /**
   * @param {string} id
   * @param {string} status
   * @param {Record<string, unknown>} [more]
   */
  function whole(id, status, more = {}) {
    return {
      ...{ object: 'realtime.response', id, status, status_details: null, output: [], conversation_id: 'conv_fake' },
      ...{ output_modalities: ['audio'], max_output_tokens: 'inf', audio: { output: { format, voice: 'tone' } } },
      ...{ usage: null, metadata: null },
      ...more,
    };
  }

  /**
   * @param {number} status
   * @param {unknown} body
   * @param {Record<string, string>} [headers]
   */
  function json(status, body, headers = {}) {
    return new Response(JSON.stringify(body), { status, headers: { 'Content-Type': 'application/json', ...headers } });
  }

  /**
   * @param {AbortSignal|null|undefined} signal
   * @returns {Promise<Response>}
   */
  function untilAborted(signal) {
    return new Promise((_, reject) => signal?.addEventListener('abort', () => reject(new DOMException('aborted', 'AbortError'))));
  }

  /** @param {RTCPeerConnection} pc */
  function gathered(pc) {
    return new Promise((resolve) => {
      const check = () => pc.iceGatheringState === 'complete' && resolve(undefined);
      pc.onicegatheringstatechange = check;
      check();
    });
  }

  const fakeServer = new FakeServer();
  window.fetch = (input, init) => fakeServer.fetch(input, init);
  Object.defineProperty(window, 'fakeServer', { value: fakeServer });
})();

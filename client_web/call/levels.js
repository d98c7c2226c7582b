/**
 * How loud both sides are, sixty times a second, without touching the sound: the analysers are
 * connected to nothing.
 */

/** Louder than this counts as speech into the microphone, dBFS. */
const LOUD_DB = -45;
/** Louder than this counts as sound out of the speaker, dBFS. */
const SOUND_DB = -50;

/** @typedef {{mic: number, out: number, micDb: number, outDb: number}} Levels mic and out run from 0 to 1 */

export class LevelMeter {
  /** @type {AudioContext|null} */
  #context = null;
  /** @type {Record<'mic'|'out', {source: MediaStreamAudioSourceNode, analyser: AnalyserNode}|null>} */
  #taps = { mic: null, out: null };
  #samples = new Float32Array(1024);
  #mic = 0;
  #out = 0;
  /** When the microphone was last loud, ms; null before that. @type {number|null} */
  loudAt = null;
  /** Told at every frame that the reply is loud. */
  onsound = () => {};

  /** Call it inside a click. */
  resume() {
    this.#context ??= new AudioContext();
    if (this.#context.state === 'suspended') this.#context.resume().catch(() => {});
  }

  /**
   * @param {'mic'|'out'} side
   * @param {MediaStream|null} stream null takes the tap away
   */
  tap(side, stream) {
    this.#taps[side]?.source.disconnect();
    this.#taps[side] = null;
    if (side === 'mic') this.loudAt = null;
    if (!stream || !this.#context || !stream.getAudioTracks().length) return;
    const source = this.#context.createMediaStreamSource(stream);
    const analyser = this.#context.createAnalyser();
    analyser.fftSize = this.#samples.length;
    source.connect(analyser);
    this.#taps[side] = { source, analyser };
  }

  /**
   * @param {number} now ms
   * @returns {Levels}
   */
  read(now) {
    const micDb = this.#decibels('mic');
    const outDb = this.#decibels('out');
    if (micDb > LOUD_DB) this.loudAt = now;
    if (outDb > SOUND_DB) this.onsound();
    this.#mic = smoothed(this.#mic, loudness(micDb));
    this.#out = smoothed(this.#out, loudness(outDb));
    return { mic: this.#mic, out: this.#out, micDb, outDb };
  }

  /** @param {'mic'|'out'} side */
  #decibels(side) {
    const tap = this.#taps[side];
    if (!tap) return -Infinity;
    tap.analyser.getFloatTimeDomainData(this.#samples);
    let sum = 0;
    for (const sample of this.#samples) sum += sample * sample;
    return 10 * Math.log10(sum / this.#samples.length + 1e-12);
  }
}

/** @param {number} db -60 dBFS reads as 0, -12 dBFS as 1 */
function loudness(db) {
  return Math.min(1, Math.max(0, (db + 60) / 48));
}

/**
 * Quick to rise, slow to fall.
 * @param {number} before
 * @param {number} value
 */
function smoothed(before, value) {
  return before + (value - before) * (value > before ? 0.45 : 0.12);
}

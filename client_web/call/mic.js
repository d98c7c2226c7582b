/** The microphone: asking for it, and noticing when it goes. */

import { micCode } from '../core/problems.js';
import { CallError } from './signalling.js';

const CONSTRAINTS = { echoCancellation: true, noiseSuppression: true, autoGainControl: true };

/** @returns {string} '' or the code of what stands in the way before anybody is asked */
export function micObstacle() {
  if (!window.isSecureContext) return 'insecure-context';
  return 'mediaDevices' in navigator && 'getUserMedia' in navigator.mediaDevices ? '' : 'mic-unsupported';
}

/**
 * @param {() => void} onlost called when the device goes away by itself
 * @returns {Promise<MediaStream>}
 * @throws {CallError} with a mic code
 */
export async function openMic(onlost) {
  const obstacle = micObstacle();
  if (obstacle) throw new CallError(obstacle, '');
  try {
    const stream = await navigator.mediaDevices.getUserMedia({ audio: CONSTRAINTS });
    stream.getAudioTracks()[0]?.addEventListener('ended', onlost);
    return stream;
  } catch (error) {
    const { name, message } = /** @type {Error} */ (error);
    throw new CallError(micCode({ name, message }, await permission()), `${name}: ${message}`);
  }
}

/** @param {MediaStream|null} stream */
export function closeMic(stream) {
  for (const track of stream?.getTracks() ?? []) track.stop();
}

/** @returns {Promise<string>} '' where the browser will not say */
async function permission() {
  try {
    const name = /** @type {PermissionName} */ ('microphone');
    return (await navigator.permissions.query({ name })).state;
  } catch {
    return '';
  }
}

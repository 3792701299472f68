// Where in a run the page stands: every run is played, whether its frames come all at once or as they happen.

const FRAMES_A_SECOND = 25;

export class Player {
  constructor(run) {
    this.run = run;
    this.reset(false, false);
  }

  reset(playing, following) {
    this.head = 0;
    this.playing = playing;
    this.following = following; // the newest frame, whichever it is
    this.speed ??= 1;
    this.before = null;
  }

  get last() {
    return Math.max(this.run.frames.length - 1, 0);
  }

  get index() {
    return Math.min(Math.floor(this.head), this.last);
  }

  get frame() {
    return this.run.frames[this.index];
  }

  /** Move on to a moment in milliseconds, after the frames that have come until then. */
  advance(now) {
    const seconds = this.before === null ? 0 : Math.min((now - this.before) / 1000, 0.25);
    this.before = now;
    this.head = this.run.thin(this.head);
    if (this.following) this.stay();
    else if (this.playing && this.run.frames.length) this.play(seconds);
  }

  stay() {
    this.head = this.last;
    if (this.run.end) this.following = false;
  }

  play(seconds) {
    this.head = Math.min(this.head + seconds * FRAMES_A_SECOND * this.speed, this.last);
    if (this.head < this.last) return;
    if (this.run.end) this.playing = false;
    else if (this.run.network.source === "network") this.follow();
  }

  toggle() {
    const moving = this.playing || this.following;
    this.playing = !moving;
    this.following = false;
    if (this.playing && this.head >= this.last) this.head = 0;
  }

  seek(index) {
    this.head = index;
    this.playing = false;
    this.following = false;
  }

  follow() {
    this.playing = false;
    this.following = true;
  }
}

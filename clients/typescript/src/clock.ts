/** An instant. The permit of a step that was asked for at this instant ends a time after it. */
export class Since {
  private readonly running = performance.now();
  private readonly wall = Date.now();

  /**
   * The milliseconds since then: the longer of the times on two clocks. `performance.now` may stand still while the machine sleeps, and
   * the wall clock may be set back. A permit that is taken for older than it is costs a request; one that is taken for younger costs a
   * second effect.
   */
  ms(): number {
    return Math.max(performance.now() - this.running, Date.now() - this.wall);
  }
}

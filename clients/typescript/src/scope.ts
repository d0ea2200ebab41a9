// Where in a run a call is made: its run, the functions it is made in, its branch, how much
// somebody waits for it, and what the program expects of it.

import { randomHex } from "./random.js";
import { shown } from "./shown.js";

let invocations = 0;

/**
 * HintContext is what is known of the calls that are made with it. It never changes: its
 * methods return another one. Where there is an AsyncLocalStorage, {@link run} and the
 * other scopes carry it along; elsewhere hand it to the `with` of a hinted fetch.
 *
 * No method throws. One that is told what it cannot use says nothing of the calls, and the
 * fetch that sends them reports it.
 */
export class HintContext {
  /** root is the context of calls outside of everything. */
  static readonly root = new HintContext();

  /** runId is the id of the run, "" outside of any. */
  readonly runId: string = "";
  /** path is the functions that it is in, from the outermost. */
  readonly path: readonly string[] = [];
  /** invocation names the innermost invocation of a function, "" outside of any. */
  readonly invocation: string = "";
  /** override is the prefix id that was set, "" for none. */
  readonly override: string = "";
  /** branchName is the names of the branches that it is in, with slashes between. */
  readonly branchName: string = "";
  /** level is the highest latency sensitivity that was set, 0 for none. */
  readonly level: number = 0;
  /** outputTokens is how many tokens answers will have, 0 if nobody said. */
  readonly outputTokens: number = 0;
  /** remainingCalls is how many calls will follow one, -1 if nobody said. */
  readonly remainingCalls: number = -1;
  /** interArrivalMs is after how many milliseconds the next call will come, 0 if nobody said. */
  readonly interArrivalMs: number = 0;
  /** faults is what was wrong with what methods were told, the latest by method. */
  readonly faults: Readonly<Record<string, string>> = {};

  private constructor(fields: Partial<HintContext> = {}) {
    Object.assign(this, fields);
  }

  /** but returns the context with changes, and with what was wrong with what a method was told, if anything. */
  private but(changes: Partial<HintContext>, method: string, fault: string | undefined): HintContext {
    const faults = fault ? { ...this.faults, [method]: `${method}: ${fault}` } : this.faults;
    return new HintContext({ ...this, ...changes, faults });
  }

  /**
   * run begins a run: all calls of one execution of a workflow. Without an id it makes one
   * up. A run begins outside of any function, without override and branch.
   */
  run(id?: string): HintContext {
    const { name, fault } = nameOf(id ?? "");
    return this.but({ runId: name || randomHex(16), path: [], invocation: "", override: "", branchName: "" }, "run", fault);
  }

  /**
   * enterFunction enters a function, one that calls models and other functions. Each
   * invocation counts its calls anew.
   */
  enterFunction(name: string): HintContext {
    const { name: last, fault } = nameOf(name);
    return this.but({ path: [...this.path, last], invocation: String(++invocations) }, "enterFunction", fault);
  }

  /**
   * withPrefixId sets the prefix id of calls: those whose prompts begin alike should have
   * the same. An empty one takes an override away.
   */
  withPrefixId(id: string): HintContext {
    const { name, fault } = nameOf(id);
    return this.but({ override: name }, "withPrefixId", fault);
  }

  /**
   * withLatencySensitivity says how much somebody waits for the calls: 1 is hardly, 2 is as
   * usual, more is more urgent. Of nested ones the highest counts, and one below 1 says
   * nothing.
   */
  withLatencySensitivity(level: number): HintContext {
    const { n, fault } = numberOf(level, "a whole number", Number.isInteger);
    return this.but({ level: Math.max(this.level, n) }, "withLatencySensitivity", fault);
  }

  /**
   * withOutputTokens says how many tokens the answers will have, about. It goes before
   * predictions. Less than 1 says nothing.
   */
  withOutputTokens(tokens: number): HintContext {
    const { n, fault } = numberOf(tokens, "a whole number", Number.isInteger);
    return this.but({ outputTokens: Math.max(n, 0) }, "withOutputTokens", fault);
  }

  /**
   * withRemainingCalls says how many calls with the same prefix will follow the one that is
   * made; 0 says that it is the last, and a negative number says nothing. It goes before
   * predictions.
   */
  withRemainingCalls(calls: number): HintContext {
    const { n, fault } = numberOf(calls, "a whole number", Number.isInteger);
    return this.but({ remainingCalls: Math.max(n, -1) }, "withRemainingCalls", fault);
  }

  /**
   * withInterArrival says how many milliseconds after a call the next one will come, about;
   * fractions are rounded. It goes before predictions. 0 or less says nothing.
   */
  withInterArrival(ms: number): HintContext {
    const { n, fault } = numberOf(ms, "a number of milliseconds", Number.isFinite);
    return this.but({ interArrivalMs: Math.max(n, 0) }, "withInterArrival", fault);
  }

  /**
   * branch tells the parallel branches of a run apart, whose prompts have little in common
   * though they are equally deep in it. An empty name leaves all branches.
   */
  branch(name: string): HintContext {
    const { name: last, fault } = nameOf(name);
    return this.but({ branchName: this.branchName && last ? `${this.branchName}/${last}` : last }, "branch", fault);
  }

  /** stray is whether calls belong to no run and have no prefix id of their own. */
  get stray(): boolean {
    return !this.runId && !this.override;
  }

  /**
   * prefixId is the prefix id of calls: the override, or else "{run}-d{depth}", where depth
   * is the number of functions, with the branch after a slash if there is one. stray stands
   * for the run of calls that are in none.
   */
  prefixId(stray: string): string {
    if (this.override) return this.override;
    const id = `${this.runId || stray}-d${this.path.length}`;
    return this.branchName ? `${id}/${this.branchName}` : id;
  }
}

/** nameOf returns a name. Numbers name things, too; for everything else it is "". */
function nameOf(v: unknown): { name: string; fault?: string } {
  if (typeof v === "string") return { name: v };
  if (typeof v === "bigint" || Number.isFinite(v)) return { name: String(v) };
  return { name: "", fault: `expected a string, got ${shown(v)}` };
}

/** numberOf returns a number of a kind. For everything else it is -1, which says nothing. */
function numberOf(v: number, kind: string, is: (v: unknown) => boolean): { n: number; fault?: string } {
  return is(v) ? { n: v } : { n: -1, fault: `expected ${kind}, got ${shown(v)}` };
}

interface Storage {
  run<T>(context: HintContext, fn: () => T): T;
  getStore(): HintContext | undefined;
}
type StorageModule = { AsyncLocalStorage: new () => Storage };

let storage: Storage | undefined;

/**
 * ready is fulfilled once scopes work as far as they can here. It matters only in versions
 * of Node before 20.16: await it there before the first scope.
 */
export const ready: Promise<void> = open();

function open(): Promise<void> {
  const process = (globalThis as { process?: { versions?: { node?: string }; getBuiltinModule?: (id: string) => unknown } })
    .process;
  const name = "node:async_hooks";
  const use = (module: unknown) => {
    const { AsyncLocalStorage } = (module ?? {}) as Partial<StorageModule>;
    if (AsyncLocalStorage) storage = new AsyncLocalStorage();
  };
  if (process?.getBuiltinModule) {
    use(process.getBuiltinModule(name));
  } else if (process?.versions?.node) {
    return import(/* @vite-ignore */ /* webpackIgnore: true */ name).then(use, () => {});
  }
  return Promise.resolve();
}

/** current returns the context of the scopes that the caller is in. */
export function current(): HintContext {
  return storage?.getStore() ?? HintContext.root;
}

/** within calls fn in a context and returns what it returns. */
function within<T>(context: HintContext, fn: (context: HintContext) => T): T {
  return storage ? storage.run(context, () => fn(context)) : fn(context);
}

/**
 * run calls fn in a run, see {@link HintContext.run}. As with the scopes below, what fn
 * starts is in it, too, also after an await; fn gets the context, and scopes nest. Without
 * an AsyncLocalStorage, fn's argument is all there is.
 */
export function run<T>(id: string | undefined, fn: (context: HintContext) => T): T {
  return within(current().run(id), fn);
}

/** enterFunction calls fn in a function, see {@link HintContext.enterFunction}. */
export function enterFunction<T>(name: string, fn: (context: HintContext) => T): T {
  return within(current().enterFunction(name), fn);
}

/** withPrefixId calls fn with a prefix id, see {@link HintContext.withPrefixId}. */
export function withPrefixId<T>(id: string, fn: (context: HintContext) => T): T {
  return within(current().withPrefixId(id), fn);
}

/** withLatencySensitivity calls fn, see {@link HintContext.withLatencySensitivity}. */
export function withLatencySensitivity<T>(level: number, fn: (context: HintContext) => T): T {
  return within(current().withLatencySensitivity(level), fn);
}

/** withOutputTokens calls fn, see {@link HintContext.withOutputTokens}. */
export function withOutputTokens<T>(tokens: number, fn: (context: HintContext) => T): T {
  return within(current().withOutputTokens(tokens), fn);
}

/** withRemainingCalls calls fn, see {@link HintContext.withRemainingCalls}. */
export function withRemainingCalls<T>(calls: number, fn: (context: HintContext) => T): T {
  return within(current().withRemainingCalls(calls), fn);
}

/** withInterArrival calls fn, see {@link HintContext.withInterArrival}. */
export function withInterArrival<T>(ms: number, fn: (context: HintContext) => T): T {
  return within(current().withInterArrival(ms), fn);
}

/** branch calls fn in a branch of the run, see {@link HintContext.branch}. */
export function branch<T>(name: string, fn: (context: HintContext) => T): T {
  return within(current().branch(name), fn);
}

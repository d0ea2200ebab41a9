// Where in a run a call is made: its run, the functions it is made in, its branch, and how
// much somebody waits for it.

import { randomHex } from "./random.js";

let invocations = 0;

/**
 * HintContext is what is known of the calls that are made with it. It never changes: its
 * methods return another one. Where there is an AsyncLocalStorage, {@link run} and the
 * other scopes carry it along; elsewhere hand it to the `with` of a hinted fetch.
 */
export class HintContext {
  /** root is the context of calls outside of everything. */
  static readonly root = new HintContext("", [], "", "", "", 0);

  private constructor(
    /** runId is the id of the run, "" outside of any. */
    readonly runId: string,
    /** path is the functions that it is in, from the outermost. */
    readonly path: readonly string[],
    /** invocation names the innermost invocation of a function, "" outside of any. */
    readonly invocation: string,
    /** override is the prefix id that was set, "" for none. */
    readonly override: string,
    /** branchName is the names of the branches that it is in, with slashes between. */
    readonly branchName: string,
    /** level is the highest latency sensitivity that was set, 0 for none. */
    readonly level: number,
  ) {}

  /**
   * run begins a run: all calls of one execution of a workflow. Without an id it makes one
   * up. A run begins outside of any function, without override and branch.
   */
  run(id?: string): HintContext {
    return new HintContext(id || randomHex(16), [], "", "", "", this.level);
  }

  /**
   * enterFunction enters a function, one that calls models and other functions. Each
   * invocation counts its calls anew.
   */
  enterFunction(name: string): HintContext {
    const invocation = String(++invocations);
    return new HintContext(this.runId, [...this.path, name], invocation, this.override, this.branchName, this.level);
  }

  /**
   * withPrefixId sets the prefix id of calls: those whose prompts begin alike should have
   * the same. An empty one takes an override away.
   */
  withPrefixId(id: string): HintContext {
    return new HintContext(this.runId, this.path, this.invocation, id, this.branchName, this.level);
  }

  /**
   * withLatencySensitivity says how much somebody waits for the calls: 1 is hardly, 2 is as
   * usual, more is more urgent. Of nested ones the highest counts, and one below 1 says
   * nothing. It throws a TypeError for what is no whole number.
   */
  withLatencySensitivity(level: number): HintContext {
    if (!Number.isSafeInteger(level)) {
      throw new TypeError(`latency sensitivity: expected a whole number, got ${String(level)}`);
    }
    const highest = Math.max(this.level, level);
    return new HintContext(this.runId, this.path, this.invocation, this.override, this.branchName, highest);
  }

  /**
   * branch tells the parallel branches of a run apart, whose prompts have little in common
   * though they are equally deep in it. An empty name leaves all branches.
   */
  branch(name: string): HintContext {
    const joined = this.branchName && name ? `${this.branchName}/${name}` : name;
    return new HintContext(this.runId, this.path, this.invocation, this.override, joined, this.level);
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

/** branch calls fn in a branch of the run, see {@link HintContext.branch}. */
export function branch<T>(name: string, fn: (context: HintContext) => T): T {
  return within(current().branch(name), fn);
}

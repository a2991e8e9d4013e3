/** One value that many parts of the page look at. */
import { useEffect, useState } from "preact/hooks";

export class Store<T extends object> {
  private readonly listeners = new Set<() => void>();

  constructor(private value: T) {}

  get(): T {
    return this.value;
  }

  set(change: Partial<T>): void {
    this.value = { ...this.value, ...change };
    for (const listener of [...this.listeners]) listener();
  }

  listen(listener: () => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }
}

/** What `pick` takes out of the store; the part is drawn again when that is another value. */
export function useStore<T extends object, P>(store: Store<T>, pick: (value: T) => P): P {
  const [picked, setPicked] = useState<P>(() => pick(store.get()));
  useEffect(() => {
    const look = () => setPicked(() => pick(store.get()));
    look();
    return store.listen(look);
  }, [store]);
  return picked;
}

//! Maps many items with a few threads.

use std::panic;
use std::sync::Mutex;
use std::thread::{self, ScopedJoinHandle};

/// Maps the items in `workers` threads. The order of the results is not defined.
pub fn map<T: Send, R: Send>(
    items: Vec<T>,
    workers: usize,
    work: &(impl Fn(T) -> R + Sync),
) -> Vec<R> {
    let queue = Mutex::new(items.into_iter());
    let next = || queue.lock().ok().and_then(|mut queue| queue.next());
    let worker = || std::iter::from_fn(next).map(work).collect::<Vec<R>>();
    thread::scope(|scope| {
        let threads: Vec<_> = (0..workers).map(|_| scope.spawn(worker)).collect();
        threads.into_iter().flat_map(finish).collect()
    })
}

fn finish<R>(thread: ScopedJoinHandle<'_, R>) -> R {
    thread
        .join()
        .unwrap_or_else(|panicked| panic::resume_unwind(panicked))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_item_is_mapped_once() {
        let mut doubled = map((0..100).collect(), 3, &|number: u32| number * 2);
        doubled.sort_unstable();
        assert_eq!(
            doubled,
            (0..100).map(|number| number * 2).collect::<Vec<_>>()
        );
    }
}

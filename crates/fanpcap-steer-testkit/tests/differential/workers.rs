//! Runs cases in one thread on each CPU, until one case shows a difference.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use fanpcap_linux::process::cpu::{cpus, pin};

use super::case::{Case, Outcome, Report, check};
use super::seed::Seed;
use super::shrink::shrunk;

/// Pins the calling thread to a CPU, because the kernel counts turns and samples separately on each
/// CPU. Returns the CPU.
pub(crate) fn pinned() -> u32 {
    let cpu = cpus().unwrap()[0];
    pin(cpu).unwrap();
    u32::try_from(cpu).unwrap()
}

/// Runs `count` cases.
///
/// # Panics
/// Panics if a case shows a difference. The message has the smallest such case that was found.
pub(crate) fn all_agree(count: u64, case: impl Fn(u64) -> Case + Sync) -> Outcome {
    let (next, stopped) = (AtomicU64::new(0), AtomicBool::new(false));
    let work = |cpu: usize| {
        pin(cpu).unwrap();
        let cpu = u32::try_from(cpu).unwrap();
        let mut sum = Outcome::default();
        while !stopped.load(Ordering::Relaxed) {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                break;
            }
            let case = case(number);
            match check(&case, cpu, &Seed::None) {
                Ok(outcome) => sum.add(&outcome),
                Err(difference) => {
                    stopped.store(true, Ordering::Relaxed);
                    let (case, difference) = shrunk(case, difference, cpu, &Seed::None);
                    panic!("case {number}: {}", Report(&case, &difference));
                }
            }
        }
        sum
    };
    let work = &work;
    thread::scope(|scope| {
        let cpus = cpus().unwrap();
        let threads: Vec<_> = cpus
            .into_iter()
            .map(|cpu| scope.spawn(move || work(cpu)))
            .collect();
        let mut sum = Outcome::default();
        for thread in threads {
            match thread.join() {
                Ok(outcome) => sum.add(&outcome),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        sum
    })
}

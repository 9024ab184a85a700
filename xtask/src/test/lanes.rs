//! Runs jobs in lanes: jobs that compute and jobs that wait at the same time, then jobs that must
//! run alone.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use anyhow::Result;

use super::tiers::{Load, Tier};
use crate::harness::{self, How};
use crate::programs::Program;
use crate::tally::Tally;

/// Number of computing test programs that run at a time: two, because a program may use only one
/// thread, and the second program then uses the other CPUs.
const COMPUTING: usize = 2;
/// Number of mostly waiting test programs that run at a time.
const WAITING: usize = 2;

/// Up to this many failed tests of a tier run once more. If more tests fail, the cause is probably
/// the source, not other work on the machine.
const TRIED_AGAIN: usize = 3;

/// One thing to run.
#[derive(Clone)]
pub(super) struct Job {
    pub(super) tier: &'static Tier,
    pub(super) what: What,
}

#[derive(Clone)]
pub(super) enum What {
    Own(fn() -> Result<Tally>),
    Program(Program),
}

/// The result of a job.
pub(super) struct Done {
    pub(super) job: Job,
    pub(super) tally: Tally,
    pub(super) seconds: f64,
}

/// Runs all jobs; `choice` are arguments of the harness, which choose among the tests. If a few
/// tests of a tier failed, each of them runs once more at the end, alone.
pub(super) fn run(jobs: Vec<Job>, choice: &[&str]) -> Vec<Done> {
    let (all, ended) = (jobs.len(), Mutex::new(0));
    let tell = |done: &Done| {
        let mut ended = ended.lock().expect("no holder panics");
        *ended += 1;
        if done.tally != Tally::default() {
            let (label, Done { tally, seconds, .. }) = (done.job.label(), done);
            println!("[{ended} of {all}] {label}: {tally} ({seconds:.1} s)");
        }
    };
    let of = |load: Load| {
        let jobs = jobs.iter().filter(|job| job.tier.load == load).cloned();
        Mutex::new(jobs.collect::<VecDeque<Job>>())
    };
    let (computing, waiting, alone) = (of(Load::Computes), of(Load::Waits), of(Load::Alone));
    let mut done = Vec::new();
    thread::scope(|scope| {
        let lanes = [&computing; COMPUTING]
            .into_iter()
            .chain([&waiting; WAITING]);
        let begun: Vec<_> = lanes
            .map(|lane| scope.spawn(|| work(lane, choice, &tell)))
            .collect();
        for lane in begun {
            done.extend(lane.join().expect("no lane panics"));
        }
    });
    done.extend(work(&alone, choice, &tell));
    forgive(&mut done, choice);
    done
}

/// Runs jobs from the queue until it is empty.
fn work(jobs: &Mutex<VecDeque<Job>>, choice: &[&str], tell: &impl Fn(&Done)) -> Vec<Done> {
    let next = || jobs.lock().expect("no holder panics").pop_front();
    let mut done = Vec::new();
    while let Some(job) = next() {
        let begin = Instant::now();
        let tally = job.run(choice).unwrap_or_else(|error| {
            println!("  FAIL  {}: {error:#}", job.label());
            Tally::one_failed(&format!("{error:#}"))
        });
        let seconds = begin.elapsed().as_secs_f64();
        let end = Done {
            job,
            tally,
            seconds,
        };
        tell(&end);
        done.push(end);
    }
    done
}

impl Job {
    pub(super) fn label(&self) -> String {
        match &self.what {
            What::Own(_) => self.tier.name.to_owned(),
            What::Program(program) => program.label(),
        }
    }

    fn run(&self, choice: &[&str]) -> Result<Tally> {
        match &self.what {
            What::Own(work) => work(),
            What::Program(program) => {
                let arguments = self.arguments(choice);
                harness::run(program, self.how(&arguments))
            }
        }
    }

    fn arguments<'a>(&self, choice: &[&'a str]) -> Vec<&'a str> {
        let own = self.tier.arguments.iter().copied();
        own.chain(choice.iter().copied()).collect()
    }

    fn how<'a>(&self, arguments: &'a [&'a str]) -> How<'a> {
        How {
            arguments,
            environment: self.tier.environment,
            is_nice: self.tier.load == Load::Computes,
        }
    }
}

/// Runs up to three failed tests of a tier alone. A test that then passes counts as passed, and the
/// last lines of the output name it as unsteady.
fn forgive(done: &mut [Done], choice: &[&str]) {
    let failed = |done: &[Done], name: &str| -> usize {
        let of_tier = done.iter().filter(|end| end.job.tier.name == name);
        of_tier.map(|end| end.tally.failed).sum()
    };
    for at in 0..done.len() {
        let few = failed(done, done[at].job.tier.name) <= TRIED_AGAIN;
        let Done { job, tally, .. } = &mut done[at];
        let What::Program(program) = &job.what else {
            continue;
        };
        // A program that crashed has failures without a test's name.
        if !few || tally.failures.len() != tally.failed {
            continue;
        }
        let arguments = job.arguments(choice);
        for test in tally.failures.clone() {
            let passed = harness::passes_alone(program, &test, job.how(&arguments));
            if passed.unwrap_or(false) {
                tally.forgive(&test);
            }
        }
    }
}

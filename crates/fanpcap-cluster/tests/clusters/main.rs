//! Whole clusters in simulation: nodes, coordinators and an engine, and all that can befall them.
//!
//! A run is a pure function of its seed. This repeats a run and tells its story:
//! `SEED=17 cargo test -p fanpcap-cluster --test clusters one -- --nocapture`.

mod dice;
mod store;
mod machines;
mod fate;
mod world;
mod proof;
mod outage;

use std::time::Instant;

use fate::Scene;
use world::World;

/// What comes of many runs.
#[derive(Default, Debug)]
struct Sum {
    runs: u64,
    topologies: usize,
    loads: usize,
    lossy: usize,
}

impl Sum {
    fn and(&self, other: &Self) -> Self {
        Self {
            runs: self.runs + other.runs,
            topologies: self.topologies + other.topologies,
            loads: self.loads + other.loads,
            lossy: self.lossy + other.lossy,
        }
    }
}

/// Runs the seeds, and fails with the first one that breaks a promise.
fn run(seeds: std::ops::Range<u64>) -> Sum {
    let mut sum = Sum::default();
    for seed in seeds {
        let scene = Scene::of(seed);
        let world = World::run(seed, &scene, false);
        match proof::judge(&world, &scene) {
            Ok(verdict) => {
                sum.runs += 1;
                sum.topologies += world.store.history.len();
                sum.loads += verdict.loads;
                sum.lossy += usize::from(verdict.is_lossy);
            }
            Err(broken) => panic!("seed {seed}, {scene:?}: {broken}"),
        }
    }
    sum
}

/// How many clusters are simulated, unless `FANPCAP_RUNS` says so, and from which seed on, unless
/// `FANPCAP_FROM` does.
const RUNS: u64 = 1000;
const FROM: u64 = 0;

fn number(name: &str, default: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.map_or(default, |text| text.parse().expect("a number"))
}

#[test]
fn every_packet_has_one_owner_or_is_counted() {
    let began = Instant::now();
    let (from, runs) = (number("FANPCAP_FROM", FROM), number("FANPCAP_RUNS", RUNS));
    let (middle, end) = (from + runs / 2, from + runs);
    let halves = [from..middle, middle..end].map(|seeds| std::thread::spawn(|| run(seeds)));
    let [one, other] = halves.map(|half| half.join().expect("every promise is kept"));
    let sum = one.and(&other);
    println!("{sum:?} in {:?}", began.elapsed());
    if (from, runs) == (FROM, RUNS) {
        // The faults do happen, and so do changes.
        assert!(sum.topologies > 5000 && sum.loads > 20_000, "{sum:?}");
        assert!(sum.lossy > 100 && sum.lossy < 1000, "{sum:?}");
    }
}

#[test]
fn one() {
    let seed = std::env::var("SEED").map_or(0, |text| text.parse().expect("a number"));
    let scene = Scene::of(seed);
    println!("{scene:?}");
    let world = World::run(seed, &scene, true);
    proof::judge(&world, &scene).expect("every promise is kept");
}

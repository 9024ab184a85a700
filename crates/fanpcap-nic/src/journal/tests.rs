//! Tests of the journal, on a device in memory. Owners start and end, other processes change
//! values, and crashes happen at every step.

use super::*;
use crate::knob::Setting;
use entry::About;
use fanpcap_linux::file::directory::Directory;
use fanpcap_testkit::Scratch;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::panic::{self, AssertUnwindSafe};
use std::path::PathBuf;

thread_local! {
    /// Steps until the process dies; `None` if it never dies.
    static LEFT: Cell<Option<u32>> = const { Cell::new(None) };
}

/// A step of a change. In a test, the process may die at this step.
pub(super) fn step() {
    let left = LEFT.get();
    if left == Some(0) {
        LEFT.set(None);
        panic::resume_unwind(Box::new(Died));
    }
    LEFT.set(left.map(|left| left - 1));
}

struct Died;

const RINGS: Knob = Knob::Setting(Setting::Rings);

/// Runs `work` until step `number`. Returns `None` if `work` died at that step.
fn until<T>(number: u32, work: impl FnOnce() -> T) -> Option<T> {
    LEFT.set(Some(number));
    let done = panic::catch_unwind(AssertUnwindSafe(work));
    LEFT.set(None);
    match done {
        Ok(done) => Some(done),
        Err(payload) if payload.is::<Died>() => None,
        Err(payload) => panic::resume_unwind(payload),
    }
}

/// A device in memory. Its driver sets the affinities of its interrupts when its channels change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Fake {
    values: RefCell<BTreeMap<Knob, String>>,
    rounds_rings: bool,
    refuses: RefCell<Vec<Knob>>,
}

impl Knobs for Fake {
    fn read(&self, knob: &Knob) -> Result<String, DeviceError> {
        let values = self.values.borrow();
        values.get(knob).cloned().ok_or(DeviceError::Absent)
    }

    fn write(&self, knob: &Knob, value: &str) -> Result<(), DeviceError> {
        if self.refuses.borrow().contains(knob) {
            return Err(DeviceError::Value(value.to_owned()));
        }
        let is_rounded = self.rounds_rings && *knob == RINGS;
        let value = if is_rounded { "rx=512,tx=512" } else { value };
        step();
        self.values
            .borrow_mut()
            .insert(knob.clone(), value.to_owned());
        step();
        if *knob == Knob::Channels {
            for irq in [Knob::Irq(41), Knob::Irq(42)] {
                self.values.borrow_mut().insert(irq, "0-7".to_owned());
            }
        }
        Ok(())
    }

    fn complete(&self, _: &Knob, wanted: &str) -> Result<String, DeviceError> {
        Ok(wanted.to_owned())
    }

    fn dropped_with(&self, knob: &Knob) -> Vec<Knob> {
        let dropped = [Knob::Irq(41), Knob::Irq(42)].into_iter();
        dropped.filter(|_| *knob == Knob::Channels).collect()
    }
}

impl Fake {
    fn new() -> Self {
        let values = [
            (Knob::Channels, "combined=8"),
            (Knob::Irq(41), "3"),
            (Knob::Irq(42), "0-7"),
            (RINGS, "rx=256,tx=256"),
        ];
        let values = values.map(|(knob, value)| (knob, value.to_owned()));
        Self {
            values: RefCell::new(values.into()),
            ..Self::default()
        }
    }

    fn has(&self, knob: &Knob, value: &str) -> bool {
        self.read(knob).is_ok_and(|is| is == value)
    }
}

struct Scene {
    scratch: Scratch,
    fake: Fake,
}

impl Scene {
    fn new() -> Self {
        Self {
            scratch: Scratch::new().unwrap(),
            fake: Fake::new(),
        }
    }

    fn directory(&self) -> (Directory, PathBuf) {
        let path = self.scratch.file("");
        (Directory::open(&path).unwrap(), path)
    }

    fn open(&self) -> Journal {
        self.open_as("eth3")
    }

    fn open_as(&self, name: &str) -> Journal {
        let about = About {
            name: name.to_owned(),
            address: "02:00:00:00:00:01".to_owned(),
            driver: "ixgbe".to_owned(),
        };
        Journal::at(Place::below(self.directory(), 4, about)).unwrap()
    }

    /// Sets this number of channels for a new owner. Closes the journal again.
    fn wish(&self, value: &str) -> Result<Hold, DeviceError> {
        let mut journal = self.open();
        let hold = journal.hold()?;
        journal.set(&self.fake, Wish::While(&hold), &Knob::Channels, value)?;
        Ok(hold)
    }

    fn release(&self, hold: Hold) -> Vec<Undone> {
        self.open().release(&self.fake, hold)
    }

    fn channels(&self) -> String {
        self.fake.read(&Knob::Channels).unwrap()
    }

    fn has_journal(&self) -> bool {
        self.scratch.file("4.journal").exists()
    }
}

#[test]
fn the_last_owner_that_leaves_undoes_the_change_with_what_the_driver_dropped() {
    let scene = Scene::new();
    let first = scene.wish("combined=2").unwrap();
    assert!(scene.fake.has(&Knob::Irq(41), "0-7"));
    let second = scene.wish("combined=2").unwrap();
    assert!(scene.release(first).is_empty());
    assert_eq!(scene.channels(), "combined=2");
    let undone = scene.release(second);
    assert!(matches!(
        undone[..],
        [Undone {
            outcome: Outcome::Restored,
            ..
        }]
    ));
    assert_eq!(scene.fake, Fake::new());
    assert!(!scene.has_journal());
}

#[test]
fn equal_settings_touch_nothing_and_members_that_disagree_get_an_error() {
    let scene = Scene::new();
    scene.fake.refuses.borrow_mut().push(Knob::Channels);
    let first = scene.wish("combined=8").unwrap();
    scene.fake.refuses.borrow_mut().clear();
    // The first owner's value is the device's own value, and the owner wants it to stay.
    let error = scene.wish("combined=4").unwrap_err();
    let own = std::process::id();
    let expected = format!("process {own} has set combined=8 and still wants it");
    assert_eq!(error.to_string(), expected);
    assert_eq!(error.errno(), libc::EBUSY);
    assert!(scene.release(first).is_empty() && !scene.has_journal());
    scene.wish("combined=4").unwrap();
}

#[test]
fn a_foreign_change_is_left_alone_and_told() {
    let scene = Scene::new();
    let hold = scene.wish("combined=2").unwrap();
    scene.fake.write(&Knob::Channels, "combined=5").unwrap();
    let undone = scene.release(hold);
    assert!(matches!(&undone[0].outcome, Outcome::Foreign { is } if is == "combined=5"));
    assert_eq!(scene.channels(), "combined=5");
    assert!(!scene.has_journal());
}

#[test]
fn a_foreign_value_that_the_driver_drops_when_a_change_is_undone_comes_back() {
    let scene = Scene::new();
    let mut journal = scene.open();
    let hold = journal.hold().unwrap();
    for (knob, value) in [(Knob::Channels, "combined=2"), (Knob::Irq(41), "1")] {
        let wish = Wish::While(&hold);
        journal.set(&scene.fake, wish, &knob, value).unwrap();
    }
    scene.fake.write(&Knob::Irq(41), "5").unwrap();
    let undone = journal.release(&scene.fake, hold);
    assert!(matches!(&undone[0].outcome, Outcome::Foreign { is } if is == "5"));
    assert!(matches!(undone[1].outcome, Outcome::Restored));
    assert!(scene.fake.has(&Knob::Channels, "combined=8"));
    assert!(scene.fake.has(&Knob::Irq(41), "5") && !scene.has_journal());
}

#[test]
fn what_a_call_sets_stays_until_the_user_restores() {
    let scene = Scene::new();
    let mut journal = scene.open();
    let set = |journal: &mut Journal, value| {
        journal
            .set(&scene.fake, Wish::Stays, &Knob::Channels, value)
            .unwrap()
    };
    assert!(!set(&mut journal, "combined=8"));
    assert!(journal.changes().is_empty());
    assert!(set(&mut journal, "combined=4") && set(&mut journal, "combined=2"));
    assert!(journal.recover(&scene.fake).is_empty());
    drop(journal);
    // A later owner that ends restores the value that the call has set.
    let hold = scene.wish("combined=6").unwrap();
    scene.release(hold);
    assert_eq!(scene.channels(), "combined=2");
    let undone = scene.open().restore(&scene.fake);
    assert_eq!(undone.len(), 2);
    assert_eq!(scene.fake, Fake::new());
}

#[test]
fn what_an_owner_keeps_stays_without_it() {
    let scene = Scene::new();
    let mut journal = scene.open();
    let hold = journal.hold().unwrap();
    let wish = Wish::While(&hold);
    journal
        .set(&scene.fake, wish, &Knob::Channels, "combined=2")
        .unwrap();
    journal
        .set(&scene.fake, wish, &Knob::Irq(42), "0-7")
        .unwrap();
    journal.keep(&hold).unwrap();
    drop((hold, journal));
    let mut journal = scene.open();
    assert!(journal.recover(&scene.fake).is_empty());
    assert_eq!(journal.changes().len(), 1);
    assert_eq!(journal.restore(&scene.fake).len(), 1);
    assert_eq!(scene.fake, Fake::new());
}

#[test]
fn a_call_counts_more_than_its_process_has_configured() {
    let scene = Scene::new();
    let hold = scene.wish("combined=4").unwrap();
    let mut journal = scene.open();
    let done = journal.set(&scene.fake, Wish::Stays, &Knob::Channels, "combined=2");
    assert!(done.unwrap());
    drop(journal);
    let undone = scene.release(hold);
    assert!(matches!(undone[0].outcome, Outcome::Later));
    assert_eq!(scene.channels(), "combined=2");
    scene.open().restore(&scene.fake);
    assert_eq!(scene.fake, Fake::new());
}

#[test]
fn what_a_driver_refuses_is_as_before() {
    let scene = Scene::new();
    let mut journal = scene.open();
    scene.fake.refuses.borrow_mut().push(Knob::Channels);
    let refused = journal.set(&scene.fake, Wish::Stays, &Knob::Channels, "combined=2");
    assert!(matches!(refused, Err(DeviceError::Value(_))));
    let absent = journal.set(&scene.fake, Wish::Stays, &Knob::Setting(Setting::Key), "00");
    assert!(matches!(absent, Err(DeviceError::Absent)));
    scene.fake.refuses.borrow_mut().clear();
    assert_eq!(scene.fake, Fake::new());
    assert!(!scene.has_journal());
}

#[test]
fn what_a_driver_rounds_is_an_error_and_as_before_if_it_can_be() {
    let mut scene = Scene::new();
    scene.fake.rounds_rings = true;
    let set =
        |journal: &mut Journal| journal.set(&scene.fake, Wish::Stays, &RINGS, "rx=500,tx=512");
    let mut journal = scene.open();
    let rounded = set(&mut journal).unwrap_err();
    assert_eq!(rounded.to_string(), "its driver set rx=512,tx=512 instead");
    // This driver also rounds the old value, so the journal keeps the change.
    assert_eq!(journal.changes().len(), 1);
    drop(journal);
    scene.fake.rounds_rings = false;
    let undone = scene.open().restore(&scene.fake);
    // The undo takes the value to which the driver rounded the new value for another process's
    // value.
    assert!(matches!(
        undone[..],
        [Undone {
            outcome: Outcome::Foreign { .. },
            ..
        }]
    ));
}

#[test]
fn what_cant_be_put_back_now_is_put_back_later() {
    let scene = Scene::new();
    let hold = scene.wish("combined=2").unwrap();
    scene.fake.refuses.borrow_mut().push(Knob::Channels);
    let undone = scene.release(hold);
    assert!(matches!(undone[0].outcome, Outcome::Failed(_)));
    scene.fake.refuses.borrow_mut().clear();
    let undone = scene.open().recover(&scene.fake);
    assert!(matches!(undone[0].outcome, Outcome::Restored));
    assert_eq!(scene.fake, Fake::new());
}

#[test]
fn another_device_with_the_same_index_gets_nothing_back() {
    let scene = Scene::new();
    scene.wish("combined=2").unwrap();
    let renamed = scene.open_as("renamed");
    assert_eq!(renamed.changes().len(), 1);
    drop(renamed);
    let about = About {
        name: "eth3".to_owned(),
        driver: "veth".to_owned(),
        ..About::default()
    };
    let directory = scene.directory();
    let other = Journal::at(Place::below(directory, 4, about)).unwrap();
    assert!(other.changes().is_empty());
}

#[test]
fn nothing_is_left_behind_and_an_owner_without_changes_keeps_its_lock() {
    let scene = Scene::new();
    let has_locks = || scene.scratch.file("4.lock").exists();
    drop(scene.open());
    assert!(!has_locks());
    let journal = scene.open();
    let hold = journal.hold().unwrap();
    drop(journal);
    assert!(has_locks());
    let mut journal = scene.open();
    let wish = Wish::While(&hold);
    journal
        .set(&scene.fake, wish, &Knob::Channels, "combined=2")
        .unwrap();
    drop(journal);
    assert!(scene.open().recover(&scene.fake).is_empty(), "it lives");
    assert_eq!(scene.release(hold).len(), 1);
    assert!(!has_locks() && !scene.has_journal());
}

#[test]
fn what_all_devices_share_is_changed_by_one_process_at_a_time() {
    let scene = Scene::new();
    let file = scene.scratch.file("shared");
    std::fs::write(&file, "0").unwrap();
    let add = || {
        let count: u32 = std::fs::read_to_string(&file).unwrap().parse().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(1));
        std::fs::write(&file, (count + 1).to_string()).unwrap();
    };
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let place = Place::below(scene.directory(), 0, About::default());
            scope.spawn(move || (0..10).for_each(|_| place.alone(add).unwrap()));
        }
    });
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "20");
    assert!(!scene.scratch.file("0.lock").exists());
}

#[test]
fn a_journal_that_cant_be_read_stops_all_changes() {
    let scene = Scene::new();
    std::fs::write(scene.scratch.file("4.journal"), "fanpcap journal 7\n").unwrap();
    let directory = scene.directory();
    let place = Place::below(directory, 4, About::default());
    let error = Journal::at(place).unwrap_err();
    assert!(matches!(error, DeviceError::Malformed(_)));
}

#[test]
fn what_an_owner_changes_again_and_again_is_one_change() {
    let scene = Scene::new();
    let mut journal = scene.open();
    let set = |journal: &mut Journal, wish, value| {
        let done = journal.set(&scene.fake, wish, &RINGS, value);
        assert!(done.unwrap(), "{value}");
    };
    // A change that stays belongs to no owner, so `fold` must not merge it with the owner's
    // changes.
    set(&mut journal, Wish::Stays, "rx=64,tx=256");
    let hold = journal.hold().unwrap();
    for rx in ["rx=128,tx=256", "rx=512,tx=256", "rx=1024,tx=256"] {
        set(&mut journal, Wish::While(&hold), rx);
        journal.fold(&hold, &RINGS).unwrap();
        assert_eq!(journal.changes().len(), 2, "{rx}");
    }
    let undone = journal.release(&scene.fake, hold);
    assert_eq!(undone.len(), 1);
    assert!(scene.fake.has(&RINGS, "rx=64,tx=256"));
    journal.restore(&scene.fake);
    assert_eq!(scene.fake, Fake::new());
}

#[test]
fn a_foreign_value_between_two_changes_of_an_owner_comes_back() {
    let scene = Scene::new();
    let mut journal = scene.open();
    let hold = journal.hold().unwrap();
    let set = |journal: &mut Journal, rx: &str| {
        let done = journal.set(&scene.fake, Wish::While(&hold), &RINGS, rx);
        assert!(done.unwrap(), "{rx}");
        journal.fold(&hold, &RINGS).unwrap();
    };
    set(&mut journal, "rx=128,tx=256");
    scene.fake.write(&RINGS, "rx=64,tx=64").unwrap();
    set(&mut journal, "rx=512,tx=256");
    set(&mut journal, "rx=1024,tx=256");
    assert_eq!(journal.changes().len(), 2);
    let undone = journal.release(&scene.fake, hold);
    assert!(matches!(undone[0].outcome, Outcome::Restored));
    assert!(matches!(undone[1].outcome, Outcome::Foreign { .. }));
    assert!(scene.fake.has(&RINGS, "rx=64,tx=64") && !scene.has_journal());
}

/// Changes of three settings by one owner, which then ends. The last setting is changed twice.
fn live(scene: &Scene) {
    let mut journal = scene.open();
    let hold = journal.hold().unwrap();
    for (knob, value) in [
        (Knob::Channels, "combined=2"),
        (Knob::Irq(41), "1"),
        (RINGS, "rx=512,tx=256"),
        (RINGS, "rx=1024,tx=256"),
    ] {
        let done = journal.set(&scene.fake, Wish::While(&hold), &knob, value);
        assert!(done.unwrap());
        journal.fold(&hold, &knob).unwrap();
    }
    journal.release(&scene.fake, hold);
}

#[test]
fn after_a_crash_at_any_step_the_next_one_restores_everything() {
    let mut steps = 0;
    loop {
        let scene = Scene::new();
        let has_ended = until(steps, || live(&scene)).is_some();
        // The process that undoes the changes may die too, at the step `again`.
        for again in 0.. {
            if until(again, || scene.open().recover(&scene.fake)).is_some() {
                break;
            }
        }
        assert_eq!(scene.fake, Fake::new(), "died at step {steps}");
        assert!(!scene.has_journal(), "died at step {steps}");
        if has_ended {
            break;
        }
        steps += 1;
    }
    assert!(steps > 30, "{steps} steps");
}

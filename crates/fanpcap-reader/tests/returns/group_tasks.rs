//! The times at which a reader runs the tasks of its group. The tests have waiting, busy and
//! non-blocking readers, and readers whose application waits in poll(2).

use super::fake::{EndsRead, FakeDevice, NONBLOCKING, OPTIONS, Return, dispatch, packet, times};
use super::program::{FakeProgram, record};
use fanpcap_linux::wait::events;
use fanpcap_reader::{
    GroupTasks, Input, LinkState, PublishedCounters, PublishedPosition, Reader, Takeover,
    TaskResult,
};
use std::collections::VecDeque;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

const LATER: Duration = Duration::from_millis(30);
const TIMEOUT: Option<Duration> = Some(Duration::from_millis(10));

/// A group whose tasks the test sets.
pub(crate) struct FakeGroup {
    here: UnixStream,
    there: UnixStream,
    /// The number of times that the group's tasks were run.
    attended: AtomicU32,
    /// The rings of other members that the next runs of the tasks give to the reader.
    pub(crate) inherited: Mutex<VecDeque<Vec<Takeover>>>,
    /// The number of further runs of the tasks during which another member holds the group's lock.
    locked: AtomicU32,
    downs: AtomicU32,
    /// The time after which the group has tasks in any case, in milliseconds; 0 if there is no such
    /// time.
    latest: AtomicU32,
    is_lost: AtomicBool,
    /// Whether the reader shall hold all packets back.
    pub(crate) holds: AtomicBool,
    /// The number of frames that other members have read, which the next run of the tasks returns;
    /// 0 if it returns no number.
    pub(crate) skipped: AtomicU64,
}

impl FakeGroup {
    pub(crate) fn new() -> Arc<Self> {
        let (here, there) = UnixStream::pair().unwrap();
        here.set_nonblocking(true).unwrap();
        Arc::new(Self {
            here,
            there,
            attended: AtomicU32::new(0),
            inherited: Mutex::default(),
            locked: AtomicU32::new(0),
            downs: AtomicU32::new(0),
            latest: AtomicU32::new(0),
            is_lost: AtomicBool::new(false),
            holds: AtomicBool::new(false),
            skipped: AtomicU64::new(0),
        })
    }

    pub(crate) fn call(&self) {
        (&self.there).write_all(&[0]).unwrap();
    }

    pub(crate) fn attended(&self) -> u32 {
        self.attended.load(Ordering::SeqCst)
    }

    pub(crate) fn join(self: &Arc<Self>, reader: &Reader) -> bool {
        reader
            .control()
            .attend_to(0, Arc::clone(self) as Arc<dyn GroupTasks>)
    }
}

impl GroupTasks for FakeGroup {
    fn waits_on(&self) -> Option<BorrowedFd<'_>> {
        Some(self.here.as_fd())
    }

    fn note_down(&self) {
        self.downs.fetch_add(1, Ordering::Relaxed);
    }

    fn attend(&self) -> TaskResult {
        self.attended.fetch_add(1, Ordering::SeqCst);
        if self.locked.load(Ordering::SeqCst) > 0 {
            self.locked.fetch_sub(1, Ordering::SeqCst);
            return TaskResult {
                again: Some(Duration::from_millis(5)),
                ..TaskResult::default()
            };
        }
        while (&self.here).read(&mut [0; 64]).is_ok_and(|count| count > 0) {}
        let latest = self.latest.load(Ordering::SeqCst);
        TaskResult {
            latest: (latest != 0).then(|| Duration::from_millis(latest.into())),
            inherited: self
                .inherited
                .lock()
                .unwrap()
                .pop_front()
                .unwrap_or_default(),
            is_lost: self.is_lost.load(Ordering::SeqCst),
            holds: self.holds.load(Ordering::SeqCst),
            skipped: Some(self.skipped.swap(0, Ordering::SeqCst)).filter(|&frames| frames > 0),
            ..TaskResult::default()
        }
    }
}

fn is_readable(fd: RawFd) -> bool {
    // SAFETY: the reader that owns the descriptor lives.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    events::poll(&[fd], Some(Duration::ZERO)).unwrap()[0]
}

#[test]
fn the_first_look_for_packets_attends_once() {
    for is_v3 in [true, false] {
        let (mut device, input) = FakeDevice::new(is_v3, None);
        let reader = Reader::new(input, &NONBLOCKING).unwrap();
        let tasks = FakeGroup::new();
        assert!(tasks.join(&reader));
        device.arrive(&[packet(1, 60)]);
        assert_eq!(tasks.attended(), 0, "no read has begun");
        assert_eq!(times(&reader, -1), (Return::Count(1), vec![1]));
        assert_eq!(times(&reader, -1), (Return::Count(0), vec![]));
        assert_eq!(tasks.attended(), 1);
    }
}

#[test]
fn a_reader_that_waits_attends_at_once_and_waits_on() {
    for is_v3 in [true, false] {
        let (mut device, input) = FakeDevice::new(is_v3, None);
        let reader = Reader::new(input, &OPTIONS).unwrap();
        let tasks = FakeGroup::new();
        tasks.join(&reader);
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(LATER);
                tasks.call();
                // Only this call makes the waiting reader run the tasks.
                while tasks.attended() < 2 {
                    thread::yield_now();
                }
                thread::sleep(LATER);
                device.arrive(&[packet(1, 60)]);
                thread::sleep(2 * LATER);
            });
            assert_eq!(times(&reader, -1), (Return::Count(1), vec![1]));
        });
        assert_eq!(tasks.attended(), 2);
    }
}

/// An application may ask for the descriptor and never wait on it. With a time-out of 0 the
/// system's library ends no read without a packet. So the group's tasks must not end such a read,
/// either.
#[test]
fn what_a_company_wants_during_a_read_does_not_end_it() {
    let (frames, input_of_frames) = FakeDevice::new(false, None);
    let (blocks, input_of_blocks) = FakeDevice::new(true, None);
    let (records, input_of_records) = FakeProgram::new(None);
    let frames = Mutex::new(frames);
    let blocks = Mutex::new(blocks);
    let cases: [(Input, &(dyn Fn() + Sync)); 3] = [
        (input_of_frames, &|| {
            frames.lock().unwrap().arrive(&[packet(1, 60)])
        }),
        (input_of_blocks, &|| {
            blocks.lock().unwrap().arrive(&[packet(1, 60)])
        }),
        (input_of_records, &|| records.arrive(&[record(1, 60)])),
    ];
    for (input, arrive) in cases {
        let reader = Reader::new(input, &OPTIONS).unwrap();
        let tasks = FakeGroup::new();
        assert!(tasks.join(&reader));
        let descriptor = reader.control().selectable().unwrap();
        assert!(is_readable(descriptor), "the first run of the tasks is due");
        assert_eq!(times(&reader, -1), (Return::Count(0), vec![]));
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(LATER);
                tasks.call();
                while tasks.attended() < 2 {
                    thread::yield_now();
                }
                thread::sleep(LATER);
                arrive();
                thread::sleep(2 * LATER);
            });
            assert_eq!(times(&reader, -1), (Return::Count(1), vec![1]));
        });
    }
}

#[test]
fn a_reader_that_waits_attends_in_time_and_earlier_when_called() {
    let (mut device, input) = FakeDevice::new(true, None);
    let reader = Reader::new(input, &OPTIONS).unwrap();
    let tasks = FakeGroup::new();
    tasks.latest.store(4000, Ordering::SeqCst);
    tasks.join(&reader);
    let await_attended = |count| {
        let begun = Instant::now();
        while tasks.attended() < count {
            thread::yield_now();
        }
        begun.elapsed()
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            let _ends = EndsRead(&reader);
            await_attended(1);
            thread::sleep(LATER);
            tasks.call();
            assert!(await_attended(2) < Duration::from_secs(3));
            assert!(await_attended(3) > Duration::from_secs(3));
            device.arrive(&[packet(1, 60)]);
            thread::sleep(2 * LATER);
        });
        assert_eq!(times(&reader, -1), (Return::Count(1), vec![1]));
    });
}

#[test]
fn a_reader_that_waits_gets_company() {
    let (mut device, input) = FakeDevice::new(true, None);
    let reader = Reader::new(input, &OPTIONS).unwrap();
    let tasks = FakeGroup::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(LATER);
            tasks.join(&reader);
            while tasks.attended() == 0 {
                thread::yield_now();
            }
            device.arrive(&[packet(1, 60)]);
            thread::sleep(2 * LATER);
        });
        assert_eq!(times(&reader, -1), (Return::Count(1), vec![1]));
    });
}

#[test]
fn nobody_spins_while_another_holds_the_lock() {
    let (_device, input) = FakeDevice::new(true, None);
    let reader = Reader::new(input, &OPTIONS).unwrap();
    let tasks = FakeGroup::new();
    tasks.locked.store(10, Ordering::SeqCst);
    tasks.join(&reader);
    tasks.call();
    let begun = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| {
            while tasks.attended() < 11 {
                thread::yield_now();
            }
            thread::sleep(LATER);
            reader.control().break_loop();
        });
        assert_eq!(times(&reader, -1), (Return::Break, vec![]));
    });
    assert!(begun.elapsed() >= Duration::from_millis(50));
    assert_eq!(tasks.attended(), 11);
}

#[test]
fn a_read_that_does_not_wait_attends_when_it_finds_nothing() {
    let (mut device, input) = FakeDevice::new(true, None);
    let reader = Reader::new(input, &NONBLOCKING).unwrap();
    let tasks = FakeGroup::new();
    tasks.join(&reader);
    times(&reader, -1);
    tasks.call();
    device.arrive(&[packet(1, 60)]);
    assert_eq!(times(&reader, -1), (Return::Count(1), vec![1]));
    assert_eq!(tasks.attended(), 1, "the read has found a packet");
    assert_eq!(times(&reader, -1), (Return::Count(0), vec![]));
    assert_eq!(tasks.attended(), 2);
    assert_eq!(times(&reader, -1), (Return::Count(0), vec![]));
    assert_eq!(tasks.attended(), 2);
}

/// Lets the reader publish its counters and its position, for its only device. Returns the
/// published position.
pub(crate) fn keep(reader: &Reader) -> PublishedPosition {
    let kept = PublishedCounters::own();
    let position = kept.position.clone();
    reader.keep(0, kept);
    position
}

#[test]
fn a_busy_reader_attends_ten_times_a_second() {
    for is_v3 in [true, false] {
        let (mut device, input) = FakeDevice::new(is_v3, None);
        let reader = Reader::new(input, &NONBLOCKING).unwrap();
        let tasks = FakeGroup::new();
        keep(&reader);
        tasks.join(&reader);
        device.arrive(&[packet(1, 60), packet(2, 60)]);
        let mut passed = 0;
        // The ring is never empty, so the reader never waits. It reads the clock at least every 64
        // packets. As each packet takes at least 2 ms, a tenth of a second has passed by that time,
        // and the reader must run the tasks.
        dispatch(&reader, 10_000, |_| {
            device.arrive(&[packet(3, 60)]);
            thread::sleep(Duration::from_millis(2));
            if passed == 0 {
                tasks.call();
            }
            passed += 1;
            if tasks.attended() > 1 {
                reader.control().break_loop();
            }
            assert!(passed < 125, "{is_v3}");
        });
        assert_eq!(tasks.attended(), 2);
    }
}

#[test]
fn one_descriptor_tells_of_packets_and_of_the_company() {
    let (mut device, input) = FakeDevice::new(true, TIMEOUT);
    let reader = Reader::new(input, &NONBLOCKING).unwrap();
    let tasks = FakeGroup::new();
    assert!(tasks.join(&reader));
    let fd = reader.control().selectable().unwrap();
    thread::sleep(Duration::from_millis(1));
    assert!(is_readable(fd), "the first run of the tasks is due");
    times(&reader, -1);
    assert!(!is_readable(fd));
    tasks.call();
    assert!(is_readable(fd));
    tasks.locked.store(1, Ordering::SeqCst);
    times(&reader, -1);
    assert!(!is_readable(fd), "another member holds the lock");
    thread::sleep(Duration::from_millis(10));
    assert!(is_readable(fd), "the time to try again has come");
    times(&reader, -1);
    assert!(!is_readable(fd));
    assert_eq!(tasks.attended(), 3);
    device.arrive(&[packet(1, 60)]);
    assert!(is_readable(fd));
}

#[test]
fn a_descriptor_that_was_handed_out_stays() {
    let (_device, input) = FakeDevice::new(true, TIMEOUT);
    let reader = Reader::new(input, &NONBLOCKING).unwrap();
    assert_eq!(reader.control().selectable(), None);
    let tasks = FakeGroup::new();
    assert!(!tasks.join(&reader));
    assert_eq!(reader.control().selectable(), None);
    tasks.call();
    times(&reader, -1);
    assert_eq!(tasks.attended(), 1);
}

#[test]
fn a_read_returns_to_who_waits_by_himself() {
    // The group wakes the application by the descriptor, and the application can't detect the
    // reason. So the read that follows must return although there is no packet.
    for timeout in [TIMEOUT, None] {
        let (_device, input) = FakeDevice::new(true, timeout);
        let reader = Reader::new(input, &OPTIONS).unwrap();
        let tasks = FakeGroup::new();
        tasks.join(&reader);
        reader.control().selectable().unwrap();
        assert_eq!(times(&reader, -1), (Return::Count(0), vec![]));
        tasks.call();
        assert_eq!(times(&reader, -1), (Return::Count(0), vec![]));
        assert_eq!(tasks.attended(), 2);
    }
}

#[test]
fn several_devices_have_a_company_each() {
    let (devices, inputs): (Vec<_>, Vec<_>) =
        (0..2).map(|_| FakeDevice::new(true, TIMEOUT)).unzip();
    let reader = Reader::of_several(inputs, &NONBLOCKING).unwrap();
    let fd = reader.control().selectable().unwrap();
    let groups = [FakeGroup::new(), FakeGroup::new()];
    for (device, tasks) in groups.iter().enumerate() {
        let tasks = Arc::clone(tasks) as Arc<dyn GroupTasks>;
        assert!(reader.control().attend_to(device, tasks));
    }
    times(&reader, -1);
    assert!(!is_readable(fd));
    groups[1].call();
    assert!(is_readable(fd));
    times(&reader, -1);
    assert!(!is_readable(fd));
    // The tasks of both groups run, because the tasks of the second group may concern the first.
    let attended = groups.each_ref().map(|tasks| tasks.attended());
    assert_eq!(attended, [2, 2]);
    drop(devices);
}

#[test]
fn a_reader_whose_device_may_be_lost_asks_the_port() {
    let gone = |device: &FakeDevice, answer| device.port.links.lock().unwrap().push_back(answer);
    let gone_is = |device: &FakeDevice| gone(device, Err("detached"));
    let failed = (Return::Error("detached".to_owned()), vec![]);
    // First a reader that waits. It must ask the port again, although the port first reports that
    // the device is up.
    let (device, input) = FakeDevice::new(true, None);
    let reader = Reader::new(input, &OPTIONS).unwrap();
    let tasks = FakeGroup::new();
    tasks.join(&reader);
    tasks.is_lost.store(true, Ordering::SeqCst);
    gone(&device, Ok(LinkState::Up));
    gone_is(&device);
    assert_eq!(times(&reader, -1), failed);
    // Then a reader whose application waits in poll(2).
    let (device, input) = FakeDevice::new(true, None);
    let reader = Reader::new(input, &NONBLOCKING).unwrap();
    let tasks = FakeGroup::new();
    tasks.join(&reader);
    let fd = reader.control().selectable().unwrap();
    times(&reader, -1);
    tasks.is_lost.store(true, Ordering::SeqCst);
    tasks.call();
    gone_is(&device);
    assert!(is_readable(fd));
    assert_eq!(times(&reader, -1).0, Return::Count(0));
    assert!(is_readable(fd), "the application must read again");
    assert_eq!(times(&reader, -1), failed);
}

#[test]
fn of_several_devices_an_application_that_was_woken_for_the_company_does_not_wait() {
    let (_devices, inputs): (Vec<_>, Vec<_>) = [true, false]
        .map(|is_v3| FakeDevice::new(is_v3, TIMEOUT))
        .into_iter()
        .unzip();
    let reader = Reader::of_several(inputs, &OPTIONS).unwrap();
    let tasks = FakeGroup::new();
    tasks.join(&reader);
    let fd = reader.control().selectable().unwrap();
    for attended in 1..4 {
        assert!(is_readable(fd));
        assert_eq!(times(&reader, -1), (Return::Count(0), vec![]));
        assert_eq!(tasks.attended(), attended);
        assert!(!is_readable(fd));
        tasks.call();
    }
}

/// The process for which the reader holds its packets back has ended, and reports no more.
#[test]
fn packets_that_are_held_back_come_before_the_error_of_a_device_that_is_gone() {
    let (mut device, input) = FakeDevice::new(true, None);
    let reader = Reader::new(input, &OPTIONS).unwrap();
    let tasks = FakeGroup::new();
    tasks.holds.store(true, Ordering::SeqCst);
    tasks.is_lost.store(true, Ordering::SeqCst);
    tasks.join(&reader);
    device.arrive(&[packet(1, 60)]);
    for _ in 0..2 {
        device.port.links.lock().unwrap().push_back(Err("detached"));
    }
    assert_eq!(times(&reader, 1), (Return::Count(1), vec![1]));
    assert_eq!(
        times(&reader, -1),
        (Return::Error("detached".to_owned()), vec![])
    );
}

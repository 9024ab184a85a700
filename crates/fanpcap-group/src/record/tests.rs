//! Records that are written and read again, and words that are not a record.

use super::*;
use fanpcap_config::fanout::Script;
use fanpcap_config::source::Source;
use proptest::prelude::*;

pub(crate) fn steering(text: &str) -> Steering {
    let script = Script::of_text(Source::new("test", text));
    Steering::compile(&script, &|_| Err("no libpcap here".to_owned())).unwrap()
}

pub(crate) fn record() -> Record {
    Record {
        pid: 4711,
        mode: Mode::parse("hash+defrag").unwrap(),
        class: 63,
        program: "tcpdump".to_owned(),
        executable: (8, 15),
        read_ns: 77,
        counters: MemberCounters {
            received: 10,
            dropped: 3,
        },
        taken: None,
        read_taken: None,
        waits: false,
        joined_ns: 44,
        ring_bytes: 16 << 20,
        captures_sent: true,
        shared: Some(vec![7, 30_000, 0, 8]),
        steals: false,
        is_founder: false,
        last_look: LastLook::Unknown,
        steering: None,
        no_flow: None,
    }
}

pub(crate) fn running(title: &str) -> Running {
    Running {
        digest: 4711,
        title: title.to_owned(),
        has_set: true,
        counted_ns: 78,
        counters: std::array::from_fn(|index| 1 << index),
        late: 5,
    }
}

const NOTHING: MemberCounters = MemberCounters {
    received: 0,
    dropped: 0,
};

fn last_look() -> impl Strategy<Value = LastLook> {
    // The uppermost bit says that another member reads the ring.
    let at = (1..1_u64 << 63).prop_map(LastLook::At);
    prop_oneof![Just(LastLook::Never), Just(LastLook::Waits), at]
}

fn garbage() -> impl Strategy<Value = [u64; WORDS]> {
    let word = prop_oneof![any::<u64>(), 0..100_u64, u64::MAX - 9..=u64::MAX];
    proptest::collection::vec(word, WORDS).prop_map(|words| {
        let mut page = [0; WORDS];
        page.copy_from_slice(&words);
        page
    })
}

#[test]
fn foreign_words_are_no_record() {
    let mut words = record().encode(NOTHING);
    words[0] = u64::from_ne_bytes(*b"FANPCAP3");
    assert_eq!(Record::decode(&words), None);
    assert_eq!(Record::decode(&[0; WORDS]), None);
}

#[test]
fn counters_that_would_be_negative_are_no_record() {
    let before = MemberCounters {
        received: 5,
        dropped: 0,
    };
    let mut words = record().encode(before);
    words[at::BY_LIBRARY[0]] = 4;
    assert_eq!(Record::decode(&words), None);
    words[at::BY_US[0]] = 1;
    assert_eq!(Record::decode(&words).unwrap().counters.received, 0);
}

#[test]
fn a_program_is_told_by_groups_that_have_one() {
    let steering = Some(running("main = tcp >-> steer_flow"));
    let mode = ModeKind::Program.into();
    let told = Record {
        mode,
        steering,
        ..record()
    };
    assert_eq!(Record::decode(&told.encode(NOTHING)), Some(told.clone()));
    let of_hash = Record {
        mode: record().mode,
        ..told
    };
    let decoded = Record::decode(&of_hash.encode(NOTHING)).unwrap();
    assert_eq!(decoded.steering, None);
}

#[test]
fn why_there_is_no_flow_stands_in_place_of_a_title() {
    let read = |mode: &str, word: u64| {
        let mode = Mode::parse(mode).unwrap();
        let mut words = Record { mode, ..record() }.encode(NOTHING);
        words[at::TITLE] = word;
        let read = Record::decode(&words).unwrap();
        assert_eq!(read.steering, None);
        read.no_flow.map(|why| why.to_string())
    };
    let why = "has no CAP_BPF for flow";
    assert_eq!(read("hash+defrag", 1).as_deref(), Some(why));
    // A page says nothing in words of its own, and nothing in a group of another mode.
    for word in [0, 4, u64::MAX, title_words("is a text")[0]] {
        assert_eq!(read("hash", word), None);
    }
    assert_eq!(read("lb", 1), None);
    let steered = Record {
        mode: ModeKind::Program.into(),
        steering: Some(running("flow")),
        ..record()
    };
    assert_eq!(Record::decode(&steered.encode(NOTHING)), Some(steered));
}

#[test]
fn names_on_a_page_can_not_act_on_a_terminal() {
    let told = Record {
        program: "a\u{1b}[31m\u{9b}b".to_owned(),
        mode: ModeKind::Program.into(),
        steering: Some(running("\u{1b}]0;x\u{7}")),
        ..record()
    };
    let decoded = Record::decode(&told.encode(NOTHING)).unwrap();
    assert_eq!(decoded.program, "a?[31m?b");
    assert_eq!(decoded.steering.unwrap().title, "?]0;x?");
}

#[test]
fn a_long_title_is_cut_between_characters_and_says_so() {
    let cut = "é".repeat(30) + "…";
    for (title, shown) in [
        ("é".repeat(32), "é".repeat(32)),
        ("é".repeat(33), cut.clone()),
        (cut.clone(), cut),
    ] {
        let told = Record {
            mode: ModeKind::Program.into(),
            steering: Some(running(&title)),
            ..record()
        };
        let decoded = Record::decode(&told.encode(NOTHING)).unwrap();
        assert_eq!(decoded.steering.unwrap().title, shown);
    }
}

proptest! {
    #[test]
    fn records_survive_the_page(
        pid: u32,
        read_ns: u64,
        received in 0..1_u64 << 60,
        dropped in 0..1_u64 << 60,
        earlier in 0..1_u64 << 60,
        taken in proptest::option::of(0..1_u64 << 60),
        read in 0..1_u64 << 60,
        waits: bool,
        last_look in last_look(),
    ) {
        let counters = MemberCounters { received, dropped };
        let known = taken.filter(|_| read_ns > 0);
        let waits = waits && known.is_some();
        let read_taken = known.map(|taken| if waits { taken } else { read });
        let last_look = taken.map_or(LastLook::Unknown, |_| last_look);
        let record = Record { pid, read_ns, counters, taken, read_taken, waits, last_look, ..record() };
        let before = MemberCounters { received: earlier, dropped: earlier / 3 };
        prop_assert_eq!(Record::decode(&record.encode(before)), Some(record));
    }

    #[test]
    fn no_garbage_makes_the_decoder_fail(mut words in garbage(), like_a_page: bool) {
        if like_a_page {
            let own = record().encode(NOTHING);
            words[..2].copy_from_slice(&own[..2]);
        }
        if let Some(record) = Record::decode(&words) {
            prop_assert!(record.program.len() <= 48 && like_a_page);
        }
    }
}

#[test]
fn a_page_shows_the_devices_descriptors_beside_the_groups() {
    let shown = |numbers: &[RawFd]| {
        let page = Record {
            shared: Some(numbers.to_vec()),
            ..record()
        };
        Record::decode(&page.encode(NOTHING)).unwrap().shared
    };
    let stealing = Record {
        shared: Some(vec![3, 4, 5, 6, 32_767, 32_766]),
        steals: true,
        ..record()
    };
    assert_eq!(
        Record::decode(&stealing.encode(NOTHING)),
        Some(stealing.clone())
    );
    // Even if the descriptors do not fit, the page shows that the host loses packets.
    let unknown = Record {
        shared: None,
        ..stealing
    };
    assert_eq!(
        Record::decode(&unknown.encode(NOTHING)),
        Some(unknown.clone())
    );
    let six = [3, 4, 5, 6, 32_767, 0];
    for count in [DESCRIPTORS, WITH_REGISTRY] {
        assert_eq!(shown(&six[..count]).unwrap(), six[..count]);
    }
    for none in [&six[..5], &six[..3], &[3, 4, 5, 6, 7, 32_768][..]] {
        assert_eq!(shown(none), None);
    }
}

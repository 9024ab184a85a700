//! Messages of both directions, and bytes that are none.

use super::*;
use crate::pool_file::{PoolFile, PoolKind, PoolSize};
use fanpcap_linux::unix::{self, message};
use proptest::prelude::*;
use std::os::fd::AsFd;

fn name() -> impl Strategy<Value = String> {
    "[a-z0-9:.ä-]{1,60}"
}

fn program() -> impl Strategy<Value = Program> {
    let balance = prop_oneof![
        Just(None),
        Just(Some(Balance::Idle)),
        Just(Some(Balance::All))
    ];
    let program = (
        "(main = [a-z_\n ]{0,80}){1,40}",
        any::<Option<u32>>(),
        balance,
    );
    program.prop_map(|(text, flows, balance)| Program {
        text,
        flows,
        balance,
    })
}

fn steering() -> impl Strategy<Value = Steering> {
    prop_oneof![
        Just(Steering::Any),
        program().prop_map(Steering::Program),
        program().prop_map(Steering::Former),
    ]
}

fn text(text: String) -> Steering {
    Steering::Program(Program {
        text,
        flows: None,
        balance: None,
    })
}

/// A group's number, and whether the poller chooses it.
fn group() -> impl Strategy<Value = (Option<u16>, bool)> {
    let number = any::<Option<u16>>().prop_map(|group| (group, false));
    prop_oneof![number, Just((None, true))]
}

prop_compose! {
    fn hello()(
        (group, wants_number) in group(),
        steering in steering(),
        name in proptest::option::of(name()),
        (weight, class, snaplen) in (any::<u16>(), 0..64_u8, any::<u32>()),
        memory in any::<Option<u32>>(),
        wants_sent in any::<bool>(),
        (pair, poller) in any::<(u64, u64)>(),
    ) -> Hello {
        Hello {
            group, steering, name, weight, class, snaplen, memory, wants_sent, wants_number, pair,
            poller,
        }
    }
}

fn request() -> impl Strategy<Value = Request> {
    prop_oneof![
        hello().prop_map(Request::Hello),
        Just(Request::Reads),
        Just(Request::Holds),
        any::<u64>().prop_map(Request::ReadOut),
        proptest::collection::vec(any::<u8>(), 1..2000).prop_map(Request::Frame),
    ]
}

fn size() -> impl Strategy<Value = PoolSize> {
    (1..=64_u32, 18..=20_u32, 1..=256_u32).prop_map(|(lanes, bits, blocks)| PoolSize {
        lanes,
        block_len: 1 << bits,
        blocks,
    })
}

fn answer() -> impl Strategy<Value = Answer> {
    let numbers = (
        any::<u8>(),
        any::<u32>(),
        any::<u16>(),
        any::<Option<u16>>(),
        any::<bool>(),
        any::<u64>(),
    );
    prop_oneof![
        (size(), numbers, proptest::option::of(program())).prop_map(|(pool, numbers, steering)| {
            let (slot, ifindex, hardware, group, may_send, poller) = numbers;
            Answer::Welcome(Welcome {
                pool,
                slot,
                ifindex,
                hardware,
                group,
                may_send,
                steering,
                poller,
            })
        }),
        (size(), any::<u64>(), any::<bool>()).prop_map(|(pool, member, with_copies)| {
            Answer::Takeover(Takeover {
                pool,
                member,
                with_copies,
            })
        }),
        Just(Answer::Hold),
        Just(Answer::GoOn),
        (name(), ".{0,300}").prop_map(|(slug, text)| Answer::Refused(Refused { slug, text })),
    ]
}

/// Changes bytes, and cuts off or appends some.
fn changed(mut bytes: Vec<u8>, changes: &[(prop::sample::Index, u8)], len: usize) -> Vec<u8> {
    for (at, byte) in changes {
        let at = at.index(bytes.len());
        bytes[at] = *byte;
    }
    bytes.resize(len.min(bytes.len() + 3), 7);
    bytes
}

proptest! {
    #[test]
    fn a_message_comes_as_it_was_sent(request in request(), answer in answer()) {
        let bytes = request.encode().unwrap();
        prop_assert!(bytes.len() <= LONGEST);
        prop_assert_eq!(Request::decode(&bytes), Ok(request));
        let kind = u16::from_le_bytes([bytes[6], bytes[7]]);
        prop_assert_eq!(Answer::decode(&bytes), Err(Malformed::Kind(kind)));
        let bytes = answer.encode().unwrap();
        prop_assert_eq!(Answer::decode(&bytes), Ok(answer));
        prop_assert!(matches!(Request::decode(&bytes), Err(Malformed::Kind(_))));
    }

    #[test]
    fn what_is_decoded_is_encoded_to_the_same_bytes(
        request in request(),
        answer in answer(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        len in 0..4000_usize,
    ) {
        let bytes = changed(request.encode().unwrap(), &changes, len);
        if let Ok(request) = Request::decode(&bytes) {
            prop_assert_eq!(request.encode(), Ok(bytes));
        }
        let bytes = changed(answer.encode().unwrap(), &changes, len);
        if let Ok(answer) = Answer::decode(&bytes) {
            prop_assert_eq!(answer.encode(), Ok(bytes));
        }
    }
}

fn short() -> Hello {
    Hello {
        group: Some(5),
        steering: text("main = udp".to_owned()),
        name: None,
        weight: 1,
        class: 0,
        snaplen: 96,
        memory: None,
        wants_sent: true,
        wants_number: false,
        pair: 0x0102_0304_0506_0708,
        poller: 9,
    }
}

/// A change of these bytes needs another [`VERSION`].
#[test]
fn the_bytes_of_a_hello_are_those_of_this_version() {
    let expected = b"fanp\x01\0\x01\0\x01\x05\0\0\0\x01\0\0\x0a\0main = udp\0\0\x01\0\0\
                     \x60\0\0\0\0\x01\0\x08\x07\x06\x05\x04\x03\x02\x01\x09\0\0\0\0\0\0\0";
    assert_eq!(short().encode().unwrap(), expected);
}

#[test]
fn a_frame_fills_a_message_at_most() {
    let longest = Request::Frame(vec![7; FRAME_MAX]);
    let bytes = longest.encode().unwrap();
    assert_eq!(bytes.len(), LONGEST);
    assert_eq!(Request::decode(&bytes), Ok(longest));
    let wrong = Malformed::Field("frame");
    for len in [0, FRAME_MAX + 1] {
        assert_eq!(Request::Frame(vec![7; len]).encode(), Err(wrong));
    }
    assert_eq!(Request::decode(&bytes[..HEAD_LEN]), Err(wrong));
}

#[test]
fn another_version_is_named_whatever_follows() {
    let mut bytes = short().encode().unwrap();
    bytes[4] = 9;
    for len in [8, 9, bytes.len()] {
        assert_eq!(Request::decode(&bytes[..len]), Err(Malformed::Version(9)));
        let error = Answer::decode(&bytes[..len]).unwrap_err();
        assert_eq!(error, Malformed::Version(9));
        assert!(error.to_string().contains("version 9") && error.to_string().contains("version 1"));
    }
    assert_eq!(Request::decode(&bytes[..7]), Err(Malformed::NoMessage));
    bytes[0] = b'F';
    assert_eq!(Request::decode(&bytes), Err(Malformed::NoMessage));
}

#[test]
fn what_no_poller_accepts_is_not_sent() {
    let wrong = |change: &dyn Fn(&mut Hello)| {
        let mut hello = short();
        change(&mut hello);
        hello.encode().unwrap_err()
    };
    let field = Malformed::Field;
    for name in [String::new(), "a\nb".to_owned(), "a".repeat(256)] {
        assert_eq!(wrong(&|it| it.name = Some(name.clone())), field("name"));
    }
    assert_eq!(wrong(&|it| it.class = 64), field("class"));
    assert_eq!(wrong(&|it| it.wants_number = true), field("group"));
    let long = |len| text("x".repeat(len));
    assert_eq!(
        wrong(&|it| it.steering = long(TEXT_MAX + 1)),
        field("steering program")
    );
    let mut hello = short();
    hello.steering = long(TEXT_MAX);
    hello.name = Some("n".repeat(NAME_MAX));
    let bytes = hello.encode().unwrap();
    assert!(bytes.len() <= LONGEST, "the longest message");
    assert_eq!(Request::decode(&bytes), Ok(Request::Hello(hello)));
}

#[test]
fn the_text_of_a_refusal_is_cut_between_characters() {
    let refused = |text: String| {
        let slug = "poller-busy".to_owned();
        let bytes = Answer::Refused(Refused { slug, text }).encode().unwrap();
        match Answer::decode(&bytes) {
            Ok(Answer::Refused(refused)) => refused.text,
            Ok(Answer::Welcome(_) | Answer::Takeover(_) | Answer::Hold | Answer::GoOn) | Err(_) => {
                panic!("no refusal")
            }
        }
    };
    let text = refused(format!("x{}", "ä".repeat(TEXT_MAX)));
    assert_eq!(text.len(), TEXT_MAX - 1);
    assert!(text.ends_with('ä'));
    assert_eq!(refused("short".to_owned()), "short");
}

#[test]
fn a_member_opens_what_the_poller_has_sent_and_nothing_else() {
    let size = PoolSize {
        lanes: 1,
        block_len: 256 << 10,
        blocks: 2,
    };
    let welcome = Welcome {
        pool: size,
        slot: 3,
        ifindex: 1,
        hardware: 1,
        group: None,
        may_send: false,
        steering: None,
        poller: 9,
    };
    let [poller, member] = unix::pair().unwrap();
    let (file, _lanes) = PoolFile::create(PoolKind::File, size).unwrap();
    let [bell, _] = unix::pair().unwrap();
    let receive = |descriptors: &[_]| {
        let bytes = Answer::Welcome(welcome.clone()).encode().unwrap();
        message::send(poller.as_fd(), &bytes, descriptors).unwrap();
        let mut buffer = [0; 256];
        let message = message::receive(member.as_fd(), &mut buffer, 4)
            .unwrap()
            .unwrap();
        let Ok(Answer::Welcome(welcome)) = Answer::decode(&buffer[..message.len]) else {
            panic!("no welcome");
        };
        welcome.open(message.descriptors)
    };
    let opened = receive(&[file.as_fd(), bell.as_fd()]).unwrap();
    opened.pool.map().unwrap();
    for wrong in [
        &[file.as_fd()][..],
        &[bell.as_fd(), file.as_fd()],
        &[file.as_fd(), bell.as_fd(), bell.as_fd()],
        &[],
    ] {
        assert!(receive(wrong).is_err());
    }
}

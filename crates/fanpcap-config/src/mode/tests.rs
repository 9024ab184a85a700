//! Tests of the names of modes, of their numbers in the kernel, and of each refusal.

use super::*;

fn refusal(text: &str) -> (&'static str, usize, String) {
    let fault = Mode::parse(text).unwrap_err();
    (fault.slug, fault.offset, fault.hint.unwrap_or_default())
}

#[test]
fn names_aliases_options_and_blanks() {
    for (text, canonical) in [
        ("hash", "hash"),
        ("  HASH  ", "hash"),
        ("rr", "lb"),
        ("Round_Robin", "lb"),
        ("hash +defrag + Rollover", "hash+defrag+rollover"),
        ("qm+rollover+defrag+defrag", "qm+defrag+rollover"),
        ("rollover\t+defrag", "rollover+defrag"),
    ] {
        assert_eq!(Mode::parse(text).unwrap().to_string(), canonical, "{text}");
    }
}

#[test]
fn kernel_numbers_are_those_of_if_packet_h() {
    let mode = |text| Mode::parse(text).unwrap();
    let numbers = ModeKind::ALL.map(ModeKind::kernel_type);
    assert_eq!(numbers, [0, 1, 4, 2, 3, 5]);
    assert_eq!(mode("hash+defrag").kernel_flags(), 0x8000);
    assert_eq!(mode("hash+rollover").kernel_flags(), 0x1000);
    for kind in ModeKind::ALL {
        for mode in [
            Mode::from(kind),
            Mode {
                kind,
                defrag: true,
                rollover: true,
            },
        ] {
            let back = Mode::from_kernel(mode.kind.kernel_type(), mode.kernel_flags());
            assert_eq!(back, Some(mode));
        }
    }
    assert_eq!(Mode::from_kernel(7, 0), Some(ModeKind::Program.into()));
    assert_eq!(Mode::from_kernel(6, 0), None);
    assert_eq!(Mode::from_kernel(0, 0x4000), None);
}

#[test]
fn messages_show_programs_by_their_titles() {
    let mode = Mode {
        rollover: true,
        ..ModeKind::Program.into()
    };
    assert_eq!(described(ModeKind::Hash.into(), None), "hash");
    assert_eq!(described(mode, Some("flow")), "flow+rollover");
    assert_eq!(described(mode, Some("flow+sticky")), "flow+sticky+rollover");
    let shown = described(ModeKind::Program.into(), Some("main = steer_rnd"));
    assert_eq!(shown, "the steering program 'main = steer_rnd'");
    let shown = described(mode, Some("main = steer_rnd"));
    assert_eq!(
        shown,
        "the steering program 'main = steer_rnd' with +rollover"
    );
}

#[test]
fn wrong_names_get_the_nearest_one() {
    let hint = "did you mean 'hash'?".to_owned();
    assert_eq!(refusal(" hsah+defrag"), ("mode-unknown", 1, hint));
    let hint = "did you mean 'round_robin'?".to_owned();
    assert_eq!(refusal("roundrobin"), ("mode-unknown", 0, hint));
    let hint = "did you mean 'flow', or 'hash' (without CAP_BPF)?".to_owned();
    for text in ["flwo", "cluster_flow", "CLUSTER_FLOW", "cluster_per_flow"] {
        assert_eq!(refusal(text), ("mode-unknown", 0, hint.clone()), "{text}");
    }
    for (text, near) in [
        ("cluster_round_robin", "lb"),
        ("cluster_per_flow_2_tuple", "flow_2_tuple"),
        ("PACKET_FANOUT_CPU", "cpu"),
    ] {
        let hint = format!("did you mean '{near}'?");
        assert_eq!(refusal(text), ("mode-unknown", 0, hint));
    }
    let hint = "the program in a file is 'file:/etc/steer.pfq'".to_owned();
    assert_eq!(refusal("/etc/steer.pfq"), ("mode-unknown", 0, hint));
    let hint = "the program in a file is 'file:steer.pfq'".to_owned();
    assert_eq!(refusal("steer.pfq"), ("mode-unknown", 0, hint));
    assert_eq!(refusal("ebpf"), ("mode-unknown", 0, one_of()));
    let hint = "did you mean '+defrag'?".to_owned();
    assert_eq!(refusal("hash + defarg"), ("option-unknown", 7, hint));
}

#[test]
fn each_refusal_says_which_it_is() {
    for (text, slug, offset) in [
        ("", "mode-empty", 0),
        ("  ", "mode-empty", 2),
        ("+defrag", "mode-empty", 0),
        ("hash+", "option-empty", 5),
        ("hash++defrag", "option-empty", 5),
        ("rollover+rollover", "rollover-twice", 9),
        ("hash defrag", "option-without-plus", 5),
        ("hash+sticky", "option-of-steered-groups", 5),
        ("lb+defrag+sticky=2048", "option-of-steered-groups", 10),
        ("hash+balance", "option-of-steered-groups", 5),
        ("hash + class = 2", "option-needs-xdp", 7),
        ("hash+class", "option-number", 5),
        ("hash+class=64", "option-number", 5),
        ("hash+weight=3+sticky", "option-of-steered-groups", 5),
        ("hash+weight", "option-number", 5),
        ("hash+rollover=1", "option-with-value", 5),
        ("hash+classy", "option-unknown", 5),
    ] {
        let (found, at, _) = refusal(text);
        assert_eq!((found, at), (slug, offset), "{text}");
    }
}

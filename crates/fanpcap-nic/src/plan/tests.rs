//! Tests of the plans for the machines in `tests/machines`, which are recorded or derived from
//! drivers' sources.

use super::{Plan, Refusal, Step, Target, Wishes, plan};
use crate::channels::Channels;
use crate::facts::Facts;
use crate::knob::{Knob, Setting};

/// The facts of a machine, and the plan for it.
macro_rules! machine {
    ($name:literal) => {
        (
            $name,
            include_str!(concat!("../../tests/machines/", $name, ".facts")),
            include_str!(concat!("../../tests/machines/", $name, ".plan")),
        )
    };
}

const MACHINES: [(&str, &str, &str); 10] = [
    machine!("cpuset"),
    machine!("down"),
    machine!("i40e"),
    machine!("isolcpus"),
    machine!("ixgbe"),
    machine!("mlx5"),
    machine!("threads"),
    machine!("veth"),
    machine!("virtio"),
    machine!("virtio-mq"),
];

fn facts(name: &str) -> Facts {
    let found = MACHINES.iter().find(|it| it.0 == name).unwrap();
    Facts::parse(found.1).unwrap()
}

fn of(name: &str, wishes: Wishes) -> Plan {
    plan(&facts(name), wishes).unwrap()
}

/// With --force: the recorded machine's only device carries its default route.
const FORCED: Wishes = Wishes {
    queues: None,
    threads: false,
    monitor: false,
    on_engine: false,
    force: true,
};

#[test]
fn each_machine_has_its_plan() {
    let mut wrong = String::new();
    for (name, _, expected) in MACHINES {
        let made = of(name, FORCED).text();
        if made != expected {
            wrong += &format!("{name}:\n{made}\n");
        }
    }
    assert!(
        wrong.is_empty(),
        "plans that differ from those in tests/machines:\n{wrong}"
    );
}

#[test]
fn a_machine_after_its_plan_has_nothing_to_change() {
    use crate::interrupts::Affinity;
    use crate::knob::{Knob, Setting};
    use crate::plan::Target;
    use crate::settings;
    let mut facts = facts("isolcpus");
    for step in plan(&facts, FORCED).unwrap().steps {
        match step.target {
            Target::Knob(Knob::Channels) => {
                let now = facts.channels.unwrap();
                facts.channels = Some(crate::channels::Channels { combined: 2, ..now });
                // When the channels change, the driver sets its default table.
                let table = settings::table_text(&settings::equal(128, 2));
                facts.values.insert(Setting::Table.into(), table);
            }
            Target::Knob(knob) => _ = facts.values.insert(knob, step.value),
            Target::Channel(channel) => {
                let cpus = vec![step.value.parse().unwrap()];
                let of = |it: &&mut (crate::interrupts::Interrupt, Affinity)| {
                    it.0.serves.channel() == Some(channel)
                };
                for (_, affinity) in facts.interrupts.iter_mut().filter(of) {
                    affinity.asked.clone_from(&cpus);
                }
            }
        }
    }
    assert_eq!(plan(&facts, FORCED).unwrap().steps, []);
}

#[test]
fn the_device_of_the_default_route_is_refused_unless_forced() {
    let refused = plan(&facts("virtio"), Wishes::default()).unwrap_err();
    assert_eq!(refused, Refusal::DefaultRoute);
    assert!(refused.to_string().contains("--force"));
}

#[test]
fn so_many_queues_as_asked_for() {
    let wish = |queues| Wishes {
        queues: Some(queues),
        ..FORCED
    };
    let plan = |queues| plan(&facts("ixgbe"), wish(queues));
    assert_eq!(plan(2).unwrap().receive, [8, 9]);
    let more = plan(9).unwrap();
    assert_eq!(more.receive, [8, 9, 10, 11, 12, 13, 14, 15, 8]);
    assert!(
        more.notes
            .iter()
            .any(|note| note.contains("all CPUs receive"))
    );
    for wrong in [0, 64] {
        let refused = plan(wrong).unwrap_err();
        assert_eq!(
            refused,
            Refusal::TooMany {
                asked: wrong,
                most: 63
            }
        );
    }
}

/// The settings of a new queue come with an earlier step, so the plan has them although the device
/// does not.
#[test]
fn queues_that_come_with_the_plan_are_placed() {
    let mut one = facts("veth");
    one.channels = one.channels.map(|it| Channels { rx: 1, ..it });
    let is_of_new = |knob: &Knob, _: &mut String| {
        !matches!(knob, Knob::Setting(Setting::Rps(1..) | Setting::Xps(1..)))
    };
    one.values.retain(is_of_new);
    one.has_address = true;
    let wishes = Wishes {
        queues: Some(2),
        ..FORCED
    };
    let targets = |facts: &Facts| {
        let steps = plan(facts, wishes).unwrap().steps.into_iter();
        let is_queues = |target: &Target| target.to_string().contains("ps.");
        let of_queues = steps.map(|it| it.target).filter(is_queues);
        of_queues.map(|it| it.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(targets(&one), ["rps.0", "rps.1", "xps.0"]);
    let most = [0, 0, 0, 8];
    one.channels = Some(Channels {
        rx: 0,
        combined: 1,
        most,
        ..one.channels.unwrap()
    });
    assert_eq!(targets(&one), ["rps.0", "rps.1", "xps.0", "xps.1"]);
}

#[test]
fn queues_that_an_earlier_plan_gave_stay() {
    let mut four = facts("ixgbe");
    four.channels = four.channels.map(|it| Channels { combined: 7, ..it });
    four.missed = 0;
    let queues = |facts: &Facts| plan(facts, FORCED).unwrap().receive.len();
    assert!(queues(&four) < 7);
    four.has_planned_channels = true;
    assert_eq!(queues(&four), 7);
    // More queues than before are planned only if the device drops packets.
    four.channels = four.channels.map(|it| Channels { combined: 1, ..it });
    assert_eq!(queues(&four), 1);
    four.missed = 9;
    assert!(queues(&four) > 1);
}

/// If one CPU receives for two devices, fewer packets are captured than if two CPUs do ('fanpcap
/// bench placement-links').
#[test]
fn cpus_that_receive_for_other_devices_are_left_to_them() {
    let plan = |name: &str, taken: &[usize]| {
        let mut facts = facts(name);
        facts.taken = taken.to_vec();
        plan(&facts, FORCED).unwrap()
    };
    let second = plan("ixgbe", &[8, 9, 10, 11]);
    assert_eq!(
        (second.receive, second.applications),
        (vec![12, 13], vec![14, 15])
    );
    let told = |it: &String| it.contains("CPUs 8-11 receive for other devices");
    assert!(second.notes.iter().any(told), "{:?}", second.notes);
    // CPUs of another node are not considered.
    assert_eq!(plan("ixgbe", &[0]), of("ixgbe", FORCED));
    // With two CPUs, or two hardware threads of one core, each CPU receives for one device.
    for name in ["veth", "threads"] {
        let second = plan(name, &[1]);
        assert_eq!((second.receive, second.applications), (vec![0], vec![1]));
    }
    // If all CPUs are taken, the plan is the same as for the first device.
    let third = plan("veth", &[0, 1]);
    assert_eq!((third.receive, third.applications), (vec![1], vec![0]));
    // CPUs 12 to 15 are siblings of CPUs 8 to 11. The sibling of a busy CPU is no better than that
    // CPU.
    let mut facts = facts("ixgbe");
    for cpu in facts.cpus.iter_mut().filter(|it| it.number >= 12) {
        cpu.core = cpu.number - 4;
    }
    facts.taken = vec![8];
    let plan = super::plan(&facts, FORCED).unwrap();
    assert_eq!(
        (plan.receive, plan.applications),
        (vec![9], vec![10, 11, 14, 15])
    );
}

#[test]
fn threads_poll_where_they_are_asked_for() {
    let threads = Wishes {
        threads: true,
        ..FORCED
    };
    let text = of("veth", threads).text();
    assert!(text.contains("threaded: off -> on"), "{text}");
    assert!(text.contains("feature.rx-gro: off -> on"), "{text}");
    // All queues of a veth stay, because these queues are short, and both CPUs poll.
    for queue in ["napi.0: ? -> 1", "napi.1: ? -> 0", "napi.3: ? -> 0"] {
        assert!(
            text.contains(queue) && !text.contains("channels: "),
            "{text}"
        );
    }
    assert!(text.contains("note: all 4 queues stay"), "{text}");
    let asked = Wishes {
        queues: Some(2),
        ..threads
    };
    let text = of("veth", asked).text();
    assert!(
        text.contains("-> rx=2") && !text.contains("queues stay"),
        "{text}"
    );
    // An XDP program also gives the device NAPI instances.
    let mut with_xdp = facts("veth");
    with_xdp.napis = Some(4);
    let text = plan(&with_xdp, threads).unwrap().text();
    assert!(
        text.contains("threaded: off -> on") && !text.contains("rx-gro"),
        "{text}"
    );
    let text = of("ixgbe", threads).text();
    assert!(
        !text.contains("irq of channel") && text.contains("napi.3: ? -> 11"),
        "{text}"
    );
}

#[test]
fn packets_that_an_engine_takes_are_not_steered() {
    let on_engine = Wishes {
        on_engine: true,
        ..FORCED
    };
    assert!(of("veth", FORCED).text().contains("rps.0: "));
    let text = of("veth", on_engine).text();
    assert!(!text.contains("rps.0: "), "{text}");
    assert!(
        text.contains("note: the XDP engine takes the packets before "),
        "{text}"
    );
    let threads = Wishes {
        threads: true,
        ..on_engine
    };
    let text = of("veth", threads).text();
    assert!(!text.contains("the XDP engine"), "{text}");
    assert_eq!(of("ixgbe", on_engine), of("ixgbe", FORCED));
}

#[test]
fn short_queues_share_half_of_the_cores() {
    let threads = Wishes {
        threads: true,
        ..FORCED
    };
    let mut facts = facts("veth");
    for number in 2..8 {
        facts.cpus.push(crate::machine::Cpu {
            number,
            core: number,
            ..facts.cpus[1]
        });
    }
    facts.allowed = (0..8).collect();
    for queue in 4..8 {
        facts
            .values
            .insert(Setting::Rps(queue).into(), String::new());
    }
    facts.channels.as_mut().unwrap().rx = 8;
    let eight = plan(&facts, threads).unwrap();
    assert_eq!(eight.receive, [1, 2, 3, 4, 1, 2, 3, 4]);
    assert_eq!(eight.applications, [5, 6, 7, 0]);
    // The device gets half of the cores that other devices leave.
    facts.taken = vec![4, 5, 6, 7];
    let second = plan(&facts, threads).unwrap();
    assert_eq!(second.receive, [1, 2, 1, 2, 1, 2, 1, 2]);
    assert_eq!(second.applications, [3, 0]);
    // Two devices share both CPUs.
    facts.cpus.truncate(2);
    for taken in [vec![], vec![0, 1]] {
        facts.taken = taken;
        let both = plan(&facts, threads).unwrap();
        assert_eq!(both.receive, [1, 0, 1, 0, 1, 0, 1, 0]);
    }
}

#[test]
fn an_address_keeps_offloads_unless_it_is_a_monitor() {
    let monitor = Wishes {
        monitor: true,
        ..FORCED
    };
    let gro = "feature.rx-gro: on -> off";
    assert!(!of("i40e", FORCED).text().contains(gro));
    assert!(of("i40e", monitor).text().contains(gro));
}

#[test]
fn without_a_cpu_there_is_no_plan() {
    let mut facts = facts("ixgbe");
    facts.allowed.clear();
    assert_eq!(plan(&facts, FORCED), Err(Refusal::NoCpu));
}

#[test]
fn irqbalance_leaves_interrupts_alone_before_they_are_placed() {
    let mut facts = facts("ixgbe");
    let text = plan(&facts, FORCED).unwrap().text();
    assert!(text.contains("--banirq="), "{text}");
    facts
        .values
        .insert(Setting::Irqbalance.into(), String::new());
    let made = plan(&facts, FORCED).unwrap();
    let text = made.text();
    assert!(!text.contains("--banirq="), "{text}");
    let asks = |it: &Step| it.target == Target::Knob(Setting::Irqbalance.into());
    let at = made.steps.iter().position(asks).unwrap();
    let places = |it: &Step| matches!(it.target, Target::Channel(_));
    assert_eq!(made.steps.iter().position(places), Some(at + 1), "{text}");
    assert!(text.contains("irqbalance: none -> all ("), "{text}");
}

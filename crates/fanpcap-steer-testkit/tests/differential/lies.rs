//! Checks that the comparison would find a bug in the evaluator. The test gives evaluators one bug
//! each. Their results must differ from the kernel's results.

use fanpcap_steer::ir::{
    Comparison, Flow, Function, Header, Key, Ports, Predicate, Property, Side, Steer, Tree,
};

use super::case::check;
use super::seed::Seed;
use super::seeded::case;
use super::side::HOOKS;
use super::tree;
use super::workers::pinned;

type Lie = fn(&mut Tree);

/// Changes the tree's predicates.
fn ask(program: &mut Tree, change: impl Fn(&mut Predicate)) {
    tree::each_predicate(&mut program.main, &mut |predicate| change(predicate));
}

/// Changes the tree's functions.
fn run(program: &mut Tree, change: impl Fn(&mut Function)) {
    tree::each(&mut program.main, &mut |function| change(function));
}

fn flows(program: &mut Tree, change: impl Fn(&mut Flow)) {
    run(program, |function| {
        if let Function::Steer(Steer::Flow(flow)) = function {
            change(flow);
        }
    });
}

/// Each bug: its name, a program that shows it, and the change to the evaluator's tree.
const LIES: [(&str, &str, Lie); 29] = [
    (
        "less is less or equal",
        "filter (ip_ttl .< 64) >-> steer_link",
        |program| {
            ask(program, |asked| {
                if let Predicate::Compare(_, comparison @ Comparison::Less, _) = asked {
                    *comparison = Comparison::LessEqual;
                }
            })
        },
    ),
    (
        "the time to live is the type of service",
        "filter (ip_ttl .== 64) >-> steer_link",
        |program| {
            ask(program, |asked| {
                if let Predicate::Compare(property @ Property::Ttl, ..) = asked {
                    *property = Property::Tos;
                }
            })
        },
    ),
    (
        "a net is a bit larger",
        "filter (has_src_addr \"10.0.0.1/32\") >-> steer_link",
        |program| {
            ask(program, |asked| {
                if let Predicate::Address(_, net) = asked {
                    net.bits -= 1;
                }
            })
        },
    ),
    (
        "source is destination",
        "filter (has_src_port 80) >-> steer_link",
        |program| {
            ask(program, |asked| {
                if let Predicate::Port(side, _) = asked {
                    *side = Side::Destination;
                }
            })
        },
    ),
    (
        "only later fragments are fragments",
        "filter (is_frag) >-> steer_link",
        |program| {
            ask(program, |asked| {
                if let Predicate::Has(header @ Header::Fragment) = asked {
                    *header = Header::LaterFragment;
                }
            })
        },
    ),
    (
        "a set lacks its last number",
        "filter (vlan_id [1, 2, 100]) >-> steer_link",
        |program| {
            program.sets.iter_mut().for_each(|set| {
                set.pop();
            });
        },
    ),
    (
        "a pcap filter reads a byte later",
        "filter \"tcp dst port 80\" >-> steer_link",
        |program| {
            program
                .filters
                .iter_mut()
                .for_each(|filter| filter.code[0].k += 1);
        },
    ),
    ("RTCP is RTP", "filter is_rtcp >-> steer_link", |program| {
        ask(program, |asked| {
            if *asked == Predicate::Rtcp {
                *asked = Predicate::Rtp;
            }
        })
    }),
    (
        "one or the other is one or both",
        "filter (is_udp .^^. is_frag) >-> steer_link",
        |program| {
            ask(program, |asked| {
                if let Predicate::Xor(one, other) = asked {
                    *asked = Predicate::Or(one.clone(), other.clone());
                }
            })
        },
    ),
    ("ports are TCP's only", "steer_flow", |program| {
        flows(program, |flow| flow.ports = Ports::Tcp)
    }),
    ("no ports", "steer_flow", |program| {
        flows(program, |flow| flow.ports = Ports::None)
    }),
    (
        "the protocol does not count",
        "steer_flow_5_tuple",
        |program| flows(program, |flow| flow.protocol = false),
    ),
    ("the VLAN does not count", "steer_flow_6_tuple", |program| {
        flows(program, |flow| flow.vlan = false)
    }),
    ("what is inside is outside", "inner steer_flow", |program| {
        run(program, |function| {
            if let Function::Inner(inside) = function {
                *function = (**inside).clone();
            }
        })
    }),
    ("a field is a byte further", "steer_field 26 4", |program| {
        run(program, |function| {
            if let Function::Steer(Steer::Field(field)) = function {
                field.offset += 1;
            }
        })
    }),
    (
        "a key lacks a field",
        "steer_key \"ip_src,ip_dst\"",
        |program| {
            run(program, |function| {
                if let Function::Steer(Steer::Key(key)) = function {
                    *key = Key::IP_SOURCE;
                }
            })
        },
    ),
    (
        "the gateway is another",
        "steer_local_link \"02:00:00:00:00:01\"",
        |program| {
            run(program, |function| {
                if let Function::Steer(Steer::LocalLink(gateway)) = function {
                    gateway[5] ^= 3;
                }
            })
        },
    ),
    (
        "one more is sampled",
        "sample 1 3 >-> steer_link",
        |program| {
            run(program, |function| {
                if let Function::Sample { keep, .. } = function {
                    *keep += 1;
                }
            })
        },
    ),
    (
        "a counter counts twice",
        "when is_udp (inc 3) >-> steer_link",
        |program| {
            run(program, |function| {
                if let Function::Count(_, by) = function {
                    *by *= 2;
                }
            })
        },
    ),
    (
        "the state is not set",
        "when is_udp (put_state 3) >-> filter (has_state 3) >-> steer_link",
        |program| {
            run(program, |function| {
                if let Function::SetState(state) = function {
                    *state = 0;
                }
            })
        },
    ),
    ("what drops passes", "inv udp >-> steer_link", |program| {
        run(program, |function| {
            if let Function::Inverse(inside) = function {
                *function = (**inside).clone();
            }
        })
    }),
    (
        "the class is another",
        "when is_udp (classify 4) >-> steer_flow",
        |program| {
            run(program, |function| {
                if let Function::Classify(class) = function {
                    *class += 1;
                }
            })
        },
    ),
    ("a copy of a class", "when is_udp (classify 4)", |program| {
        run(program, |function| {
            if matches!(function, Function::Classify(_)) {
                *function = Function::Pass;
            }
        })
    }),
    (
        "the broadcast is a class's",
        "classify 6 >-> broadcast",
        |program| {
            run(program, |function| {
                if *function == Function::Broadcast {
                    *function = Function::Pass;
                }
            })
        },
    ),
    (
        "the host gets it alone",
        "when is_udp kernel >-> steer_flow",
        |program| {
            run(program, |function| {
                if let Function::Host(only) = function {
                    *only = true;
                }
            })
        },
    ),
    (
        "what is dropped is not for the host",
        "kernel >-> inv ip >-> steer_link",
        |program| {
            run(program, |function| {
                if let Function::Sequence(parts) = function {
                    parts.rotate_left(1);
                }
            })
        },
    ),
    (
        "an inverse keeps what it said",
        "par (inv (udp >-> kernel)) steer_link",
        |program| {
            run(program, |function| {
                if let Function::Inverse(inside) = function {
                    *function = Function::Sequence(vec![(**inside).clone(), Function::Drop]);
                }
            })
        },
    ),
    ("two members are one", "double_steer_mac", |program| {
        run(program, |function| {
            if *function == Function::Steer(Steer::DoubleLink) {
                *function = Function::Steer(Steer::Link);
            }
        })
    }),
    (
        "the mark is not set",
        "when is_udp (mark 3) >-> filter (has_mark 3) >-> steer_link",
        |program| {
            run(program, |function| {
                if matches!(function, Function::Mark(_)) {
                    *function = Function::Pass;
                }
            })
        },
    ),
];

/// A change of the packet that only the evaluator gets.
type Falsehood = fn(&mut Vec<u8>);

const FALSEHOODS: [(&str, &str, Falsehood); 4] = [
    (
        "the last byte is missing",
        "par3 (inner steer_flow) (steer_field 50 4) steer_link",
        |bytes| {
            bytes.pop();
        },
    ),
    ("one bit of the source's address", "steer_flow", |bytes| {
        if let Some(byte) = bytes.get_mut(29) {
            *byte ^= 1;
        }
    }),
    ("fragments of IPv4 are whole", "steer_flow", |bytes| {
        if let Some(field) = bytes.get_mut(20..22) {
            field.fill(0);
        }
    }),
    (
        "the type of ICMP",
        "filter (icmp_type .== 8) >-> steer_link",
        |bytes| {
            if let Some(byte) = bytes.get_mut(34) {
                *byte ^= 8;
            }
        },
    ),
];

/// Tests that take too long for the usual runs.
mod long {
    use super::*;

    #[test]
    #[ignore = "needs root: eBPF"]
    fn lies_of_the_evaluator_are_found() {
        let cpu = pinned();
        let programs = LIES
            .iter()
            .map(|(what, source, lie)| (what, source, Seed::Program(lie)));
        let packets = FALSEHOODS
            .iter()
            .map(|(what, source, lie)| (what, source, Seed::Packet(lie)));
        let mut found = 0;
        for (what, source, seed) in programs.chain(packets) {
            let case = case(source, &HOOKS);
            assert!(check(&case, cpu, &Seed::None).is_ok(), "{source}");
            let difference = check(&case, cpu, &seed).err();
            let difference =
                difference.unwrap_or_else(|| panic!("{what}: not found with {source}"));
            println!(
                "{what}: {:?}, {}",
                difference.hook,
                difference.what.chars().take(90).collect::<String>()
            );
            found += 1;
        }
        println!("{found} of {} found", LIES.len() + FALSEHOODS.len());
    }
}

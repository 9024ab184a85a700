//! A steering program compiled for a kernel fan-out group or for XDP: its BPF objects and its
//! digest.

use crate::ebpf::{self, Delivery, EbpfError, Nowhere};
use crate::ir::{Function, MEANING, Node, Tree};
use crate::options::{Balance, GroupOptions};
use crate::parts::{Parts, outcomes};
use fanpcap_bpf::{Classic, Object};
use std::fmt::{self, Write};

/// A compiled steering program.
#[derive(Debug)]
pub struct Compiled {
    parts: Parts,
    fanout: Object,
    filter: Option<Object>,
    digest: u64,
}

impl Compiled {
    /// Cuts the tree of a steering program into its two parts and compiles both.
    ///
    /// # Errors
    /// See [`EbpfError`].
    pub fn of(tree: &Tree) -> Result<Self, EbpfError> {
        Self::with(tree, GroupOptions::default())
    }

    /// As [`Compiled::of`], for a group with options.
    ///
    /// # Errors
    /// See [`EbpfError`].
    pub fn with(tree: &Tree, options: GroupOptions) -> Result<Self, EbpfError> {
        let parts = Parts::of(tree)?;
        Ok(Self {
            fanout: ebpf::fanout_with(&parts, options)?,
            filter: ebpf::filter(&parts, None)?,
            digest: digest(tree, MEANING, options),
            parts,
        })
    }

    /// The group's BPF program.
    pub fn fanout(&self) -> &Object {
        &self.fanout
    }

    /// The filter of each member; `None` if the steering program neither drops nor counts packets.
    pub fn filter(&self) -> Option<&Object> {
        self.filter.as_ref()
    }

    /// The members' filter combined with a handle's own filter; `None` if the steering program
    /// neither drops nor counts packets.
    ///
    /// # Errors
    /// See [`EbpfError`].
    pub fn filter_with(&self, own: &[Classic]) -> Result<Option<Object>, EbpfError> {
        ebpf::filter(&self.parts, Some(own))
    }

    /// The parts that were compiled.
    pub fn parts(&self) -> &Parts {
        &self.parts
    }

    /// Identifies the steering program, also across processes. Two sources with the same tree and
    /// the same group options have the same digest. The digest is never 0.
    pub fn digest(&self) -> u64 {
        self.digest
    }
}

/// A steering program for the XDP engine. One BPF program runs the whole tree. It is compiled
/// together with the delivery code of its device.
#[derive(Debug)]
pub struct ForEngine {
    tree: Tree,
    options: GroupOptions,
    digest: u64,
}

impl ForEngine {
    /// Checks that the tree of a steering program can be compiled for a group with options.
    ///
    /// # Errors
    /// See [`EbpfError`].
    pub fn of(tree: Tree, options: GroupOptions) -> Result<Self, EbpfError> {
        let digest = digest(&tree, MEANING, options);
        let compiled = Self {
            tree,
            options,
            digest,
        };
        compiled.decision()?;
        Ok(compiled)
    }

    /// The BPF program, with the delivery code of `delivery`.
    ///
    /// # Errors
    /// See [`EbpfError`].
    pub fn object(&self, delivery: &dyn Delivery) -> Result<Object, EbpfError> {
        ebpf::xdp(&self.tree, self.options, delivery)
    }

    /// The BPF program with a delivery that delivers nothing, to show the size and the cost of the
    /// decision.
    ///
    /// # Errors
    /// See [`EbpfError`].
    pub fn decision(&self) -> Result<Object, EbpfError> {
        self.object(&Nowhere)
    }

    /// Whether some packets go to several members.
    pub fn copies(&self) -> bool {
        let ends = outcomes(&self.tree.main);
        ends.copy || ends.broadcast || ends.double
    }

    /// Whether the steering program gives packets to classes of members.
    pub fn classifies(&self) -> bool {
        self.has(&|function| matches!(function, Function::Classify(_)))
    }

    /// Whether the steering program decides which packets the host gets.
    pub fn decides_for_host(&self) -> bool {
        self.has(&|function| matches!(function, Function::Host(_)))
    }

    fn has(&self, is_one: &dyn Fn(&Function) -> bool) -> bool {
        let mut found = false;
        self.tree.main.walk(&mut |node| {
            found |= matches!(node, Node::Function(function) if is_one(function));
        });
        found
    }

    /// See [`Compiled::digest`].
    pub fn digest(&self) -> u64 {
        self.digest
    }
}

/// Hashes `meaning` and the `Debug` text of the tree by FNV-1a. The text contains no memory
/// addresses. So members of an older and a newer build agree on a steering program only if it
/// behaves equally in both. The text keeps the original names of Rust types, so that renaming a
/// type does not change digests.
fn digest(tree: &Tree, meaning: u32, options: GroupOptions) -> u64 {
    let Tree {
        main,
        sets,
        filters,
    } = tree;
    let mut digest = Digest(0xcbf2_9ce4_8422_2325);
    // Writing to a `Digest` can't fail.
    let _ = write!(
        digest,
        "{meaning} Program {{ main: {main:?}, sets: {sets:?}, filters: {filters:?} }}"
    );
    if let Some(flows) = options.flows {
        let _ = write!(digest, " sticky {flows}");
    }
    let _ = digest.write_str(match options.balance {
        None => "",
        Some(Balance::Idle) => " balance",
        Some(Balance::All) => " balance all",
    });
    // 0 means that there is no digest.
    digest.0.max(1)
}

struct Digest(u64);

impl Write for Digest {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree;

    fn read(source: &str) -> Tree {
        tree(source, &|_| Ok(vec![Classic::keep(262_144)])).unwrap()
    }

    /// Members of different builds compare digests. A digest may change only on purpose, together
    /// with [`MEANING`], which changes all digests.
    #[test]
    fn digests_are_those_of_earlier_builds() {
        let long = "main = filter \"tcp\" >-> vlan_id_filter [1, 2, 7] >-> sample 1 10 >-> inc 3 \
                    >-> inner steer_flow";
        for (source, expected) in [
            ("main = tcp >-> steer_flow", 0x602c_c9ba_5130_adf3),
            (long, 0xf62c_97a5_f382_623a),
        ] {
            assert_eq!(Compiled::of(&read(source)).unwrap().digest(), expected);
        }
    }

    /// `tests/digests.txt` has the digest of each function's example from an earlier build.
    #[test]
    fn digests_of_all_functions_are_those_of_earlier_builds() {
        for line in include_str!("../tests/digests.txt").lines() {
            let (name, expected) = line.split_once(' ').unwrap();
            let example = read(crate::table::find(name).unwrap().example);
            let found = format!(
                "{:016x}",
                digest(&example, MEANING, GroupOptions::default())
            );
            assert_eq!(found, expected, "{name}");
        }
    }

    #[test]
    fn at_xdp_the_digest_is_the_same() {
        let source = "main = tcp >-> inc 3 >-> steer_flow";
        let for_engine = ForEngine::of(read(source), GroupOptions::default()).unwrap();
        assert_eq!(
            for_engine.digest(),
            Compiled::of(&read(source)).unwrap().digest()
        );
    }

    #[test]
    fn what_a_kernel_group_can_not_do_is_told() {
        let of = |source: &str| {
            let for_engine = ForEngine::of(read(source), GroupOptions::default()).unwrap();
            assert!(for_engine.decision().is_ok());
            let asks = [for_engine.classifies(), for_engine.decides_for_host()];
            (for_engine.copies(), asks)
        };
        assert_eq!(of("main = steer_flow"), (false, [false; 2]));
        assert_eq!(of("main = tcp"), (true, [false; 2]));
        assert_eq!(
            of("main = kernel >-> double_steer_ip"),
            (true, [false, true])
        );
        assert_eq!(
            of("main = classify 2 >-> steer_flow"),
            (false, [true, false])
        );
    }

    #[test]
    fn what_does_something_else_has_another_digest() {
        let tree = read("main = tcp >-> steer_flow");
        let digest = |meaning, options| digest(&tree, meaning, options);
        let none = GroupOptions::default();
        let balanced = GroupOptions::balanced(Balance::Idle);
        let mut digests = [
            digest(MEANING, none),
            digest(MEANING + 1, none),
            digest(MEANING, GroupOptions::sticky(7)),
            digest(MEANING, GroupOptions::sticky(8)),
            digest(MEANING, balanced),
            digest(MEANING, GroupOptions::balanced(Balance::All)),
            digest(
                MEANING,
                GroupOptions {
                    flows: Some(7),
                    ..balanced
                },
            ),
        ];
        digests.sort_unstable();
        assert!(digests.windows(2).all(|two| two[0] != two[1]));
    }
}

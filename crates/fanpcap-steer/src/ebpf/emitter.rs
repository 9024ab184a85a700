//! Emits a complete BPF program: entry, bodies, results, and BPF functions.

use super::choices::Choices;
use super::delivery::Delivery;
use super::keyed::Keyed;
use super::maps::{Map, Maps};
use super::stack::{CHOICE, MARK, OF_GROUP, SAVED_MAX, SAVED_MAX_CALLED, SCRATCH, STATE, Spots};
use super::target::Target;
#[cfg(doc)]
use super::view::INNER;
use super::view::{IPV4, IPV6, View};
use super::{EbpfError, needs::Needs};
use crate::ir::{COUNTERS, Function, Tree};
use crate::options::GroupOptions;
use crate::parts::Unfit;
use fanpcap_bpf::assembler::*;
use fanpcap_bpf::{Classic, Object};

/// The purpose of a BPF program: what it does with the steering program's decision.
#[derive(Clone, Copy)]
pub(super) enum Role<'a> {
    /// Returns the hash or the number that selects the member, or `drop` for a packet that the
    /// steering program drops.
    Steer { drop: u32 },
    /// Returns the slot that the group's table has for the hash or the number. For a packet that
    /// the steering program drops, returns the slot for hash 0.
    Place { options: GroupOptions },
    /// Returns how many bytes of the packet a member keeps. For a packet that the steering program
    /// drops, the number is 0. For other packets it is the result of the user's own filter, or all
    /// bytes if there is no such filter.
    Keep { user: Option<&'a [Classic]> },
    /// Delivers the packet to the members that the group's table gives for the decision. If `calls`
    /// is true, the code that decides is a separate BPF function.
    Deliver {
        by: &'a dyn Delivery,
        options: GroupOptions,
        calls: bool,
    },
    /// Computes a key: the hash of the tree, or a key from the headers that the walk finds.
    Keyed { by: &'a dyn Keyed, has_tree: bool },
}

/// A BPF function, which is emitted once, however many calls it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Routine {
    /// r1: context, r2: the known parts of the view, r3: offset and stage at which the walk begins.
    /// Returns the view.
    Walk,
    /// r1: context, r2: view without an IP packet, with the offset of untyped payload. If the
    /// payload is an IP packet, returns the view of this packet. If the payload is a frame with an
    /// IP packet, returns the view of the packet in the frame, with [`INNER`]. In all other cases
    /// returns the view without the offset.
    Untyped,
    /// r1: context, r2: offset of an IPv4 header, r3: the header's length. Returns 0 if the
    /// header's checksum is wrong, else another number.
    Checksum,
    /// r1: context, r2: offset, r3: length less 1, 0 to 7. Returns the first four of the frame's
    /// bytes at the offset, in memory order. Returns a negative number if the frame is too short
    /// for the length.
    Word,
    /// r1: context, r2: view. If the packet is an ICMP error, returns the view of the packet that
    /// it quotes, else r2.
    Quoted,
    /// r1: context, r2: view of the packet whose flow is hashed (an ICMP error's quoted packet),
    /// r3: view of the packet itself. Both packets are IP. Returns the hash of the flow.
    Hash(Ends),
    /// r1: context, r2: view of a fragment, r3: the fragment's own hash. Returns the hash that
    /// selects the member.
    Fragments,
    /// r1: context. Returns whether the pcap filter of this index accepts the frame.
    Pcap(usize),
    /// The same of the filter of [`Keyed::filter`].
    Own,
}

/// The addresses and ports from which a hash is made (the ends of `hash.rs`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ends {
    Flow(crate::ir::Flow),
    Media,
}

pub(super) struct Emitter<'a> {
    pub(super) asm: Assembler,
    pub(super) target: Target,
    pub(super) tree: &'a Tree,
    pub(super) role: Role<'a>,
    pub(super) view: View,
    /// Stack offset to which headers are copied.
    pub(super) scratch: i16,
    /// The code belongs to a [`Function::Inner`].
    pub(super) nested: bool,
    /// The tree reads the packet's headers.
    pub(super) walks: bool,
    /// The tree reads the carried packet.
    pub(super) asks_inside: bool,
    pub(super) maps: Maps,
    routines: Vec<(Routine, Label)>,
    /// The tree reads the packet's state.
    pub(super) keeps_state: bool,
    /// The tree has a function for which a fragment gets the outcome of its datagram
    /// ([`Self::will_follow`]).
    pub(super) follows: bool,
    /// The current body can select a member by number, not only by hash.
    pub(super) numbers: bool,
    /// The decisions that a delivering BPF program can make.
    pub(super) choices: Choices,
    /// The label at which a delivering BPF program continues after a decision in the main function.
    pub(super) decided: Option<Label>,
    pub(super) spots: Spots,
    pub(super) saved: i16,
    pub(super) saved_max: i16,
    error: Option<EbpfError>,
}

/// The kind of code for plain packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Plain {
    /// Plain packets have separate bodies, if the tree does not read headers, or if the hook lets
    /// the code read headers in place.
    Bodies,
    /// Separate code makes the views of plain packets; then all packets run through the same body.
    Views,
    /// The walk reads plain packets as it reads all others.
    Walked,
}

pub(super) fn emit(
    tree: &Tree,
    target: Target,
    role: Role<'_>,
    plain: Plain,
) -> Result<Object, EbpfError> {
    let needs = Needs::of(&tree.main)?;
    let mut emitter = Emitter {
        asm: Assembler::new(),
        target,
        tree,
        role,
        view: View::Packed,
        scratch: SCRATCH,
        nested: false,
        walks: needs.frame,
        asks_inside: needs.inside,
        maps: Maps::default(),
        routines: Vec::new(),
        keeps_state: needs.state,
        follows: false,
        numbers: false,
        choices: Choices::default(),
        decided: None,
        spots: OF_GROUP,
        saved: 0,
        saved_max: SAVED_MAX,
        error: None,
    };
    if let Role::Deliver { by, options, calls } = role {
        emitter.saved_max = if calls { SAVED_MAX_CALLED } else { 0 };
        emitter.choices = Choices::of(&tree.main);
        emitter.decided = (!calls).then(|| emitter.asm.label());
        emitter.deliver(by, options, &needs, plain);
    } else if let Role::Keyed { by, has_tree } = role {
        emitter.keyed(by, has_tree, &needs, plain);
    } else {
        emitter.asm.set(R6, R1);
        emitter.main(&needs, plain);
    }
    emitter.routines();
    if let Some(error) = emitter.error {
        return Err(error);
    }
    let maps = emitter.maps.specs(tree);
    Ok(emitter.asm.finish(target.kind(), maps)?)
}

impl Blocks for Emitter<'_> {
    fn assembler(&mut self) -> &mut Assembler {
        &mut self.asm
    }
}

impl<'a> Emitter<'a> {
    /// Emits the code of the decision: the walk and other preparation, and the bodies. r6 must have
    /// the context.
    pub(super) fn main(&mut self, needs: &Needs, plain: Plain) {
        let tree = self.tree;
        self.start_state();
        if needs.frame {
            let ready = self.asm.label();
            let in_place = self.target.reads_in_place();
            // Code that does not read in place needs the window, and the stack is too small for
            // both the window and the choices (`choices.rs`).
            let has_bodies = in_place || !(needs.headers || self.choices.on_stack());
            match plain {
                Plain::Bodies if has_bodies => self.plain_bodies(needs),
                Plain::Bodies | Plain::Views if needs.headers => self.plain_views(needs, ready),
                Plain::Bodies | Plain::Views | Plain::Walked => {}
            }
            self.walk(needs);
            self.asm.bind(ready);
        }
        if needs.headers {
            self.view = View::Kept;
        }
        self.body(&tree.main);
    }

    /// Stores 0 as the state and as the parts of the outcome on the stack. The 0 is an unknown
    /// number XORed with itself, so that the verifier does not know that it is 0.
    fn start_state(&mut self) {
        let places = [
            (self.keeps_state, STATE),
            (self.choices.on_stack(), CHOICE),
            (self.choices.marks, MARK),
        ];
        for (_, place) in places.into_iter().filter(|(is_used, _)| *is_used) {
            self.asm.load(Width::Word, R1, R6, 16);
            self.asm.set(R2, R1);
            self.asm.alu(Op::Xor, R1, R2);
            self.asm.store(Width::Word, R10, place, R1);
        }
    }

    /// Emits a body, which runs the tree on a packet and returns the result.
    pub(super) fn body(&mut self, main: &'a Function) {
        let drop = self.asm.label();
        self.numbers = false;
        self.start_decision();
        self.function(main, drop);
        match self.role {
            Role::Steer { drop: nothing } => {
                self.follow();
                self.asm.set32(R0, R8);
                self.dropped(drop, nothing as i32);
            }
            Role::Place { options } => {
                self.follow();
                self.place(Some(drop), options.flows, None);
            }
            Role::Deliver { .. } => {
                self.follow();
                return self.return_decision(drop);
            }
            Role::Keyed { .. } => return self.has_key(drop),
            Role::Keep { user } => {
                self.keep(user);
                self.asm.exit();
                self.bind_and(drop, |this| {
                    this.count_nowhere();
                    this.asm.set32(R0, 0);
                });
            }
        }
        self.asm.exit();
    }

    /// Returns r0, or `nothing` for a packet that was dropped.
    fn dropped(&mut self, drop: Label, nothing: i32) {
        self.asm.exit();
        self.asm.bind(drop);
        self.asm.set32(R0, nothing);
    }

    /// Puts into r0 how many bytes of a packet that was not dropped a member keeps.
    fn keep(&mut self, user: Option<&[Classic]>) {
        match user.map(|user| self.user_filter(user)) {
            None => self.asm.alu32(Op::Move, R0, -1),
            Some(Err(error)) => self.fail(error),
            Some(Ok(())) => {}
        }
    }

    /// Emits a function of the tree. The code jumps to `drop` if the function drops the packet.
    pub(super) fn function(&mut self, function: &'a Function, drop: Label) {
        if !self.asm.is_live() {
            return;
        }
        match function {
            Function::Pass => {}
            Function::Drop => self.asm.jump(drop),
            Function::Sequence(functions) => {
                for function in functions {
                    self.function(function, drop);
                }
            }
            Function::If(predicate, then, otherwise) => {
                let [yes, no, done] = self.asm.labels();
                self.branch(predicate, yes, no);
                self.asm.bind(yes);
                self.function(then, drop);
                self.asm.jump(done);
                self.asm.bind(no);
                self.function(otherwise, drop);
                self.asm.bind(done);
            }
            Function::First(functions) => self.first(functions, drop),
            Function::Inverse(function) => self.inverse(function, drop),
            Function::Inner(function) => self.inner(function, drop),
            Function::Steer(steer) => self.steer(steer, drop),
            Function::Count(counter, amount) => self.count(*counter, *amount),
            Function::SetState(state) if self.keeps_state => {
                self.asm.number(R1, u64::from(*state));
                self.asm.store(Width::Word, R10, STATE, R1);
            }
            Function::SetState(_) => {}
            Function::Sample { keep, of, index } => self.sample(*keep, *of, *index, drop),
            Function::Broadcast if self.delivers() => self.broadcast(),
            Function::Classify(class) if self.delivers() => self.classify(*class),
            Function::Host(only) if self.delivers() => self.host(*only, drop),
            Function::Mark(mark) if self.delivers() => self.mark(*mark),
            Function::Broadcast => self.unfit("a copy to every member"),
            Function::Classify(_) => self.unfit("a class of members"),
            Function::Host(_) => self.unfit("packets for the host"),
            Function::Mark(_) => self.unfit("a packet's mark"),
        }
    }

    /// Whether the BPF program counts the packets of each bucket.
    pub(super) fn counts_loads(&self) -> bool {
        match self.role {
            Role::Place { options } | Role::Deliver { options, .. } => options.balance.is_some(),
            Role::Steer { .. } | Role::Keep { .. } | Role::Keyed { .. } => false,
        }
    }

    pub(super) fn delivers(&self) -> bool {
        matches!(self.role, Role::Deliver { .. })
    }

    fn inner(&mut self, function: &'a Function, drop: Label) {
        let outside = (self.nested, self.view);
        self.nested = true;
        if self.view == View::Kept {
            self.view = View::Packed;
        }
        self.function(function, drop);
        (self.nested, self.view) = outside;
    }

    fn count(&mut self, counter: u8, amount: i64) {
        if usize::from(counter) >= COUNTERS {
            return self.fail(EbpfError::Unfit(Unfit {
                what: format!(
                    "the counters are 0 to {}, found counter {counter}",
                    COUNTERS - 1
                ),
            }));
        }
        let map = self.maps.of(Map::Counters);
        self.asm.value(R1, map, 8 * i32::from(counter));
        self.asm.number(R2, amount as u64);
        self.asm.atomic_add(R1, 0, R2);
    }

    pub(super) fn unfit(&mut self, what: &str) {
        self.fail(EbpfError::Unfit(Unfit {
            what: format!("a BPF program of a kernel group can't decide on {what}"),
        }));
    }

    pub(super) fn fail(&mut self, error: EbpfError) {
        self.error.get_or_insert(error);
    }

    /// Calls a BPF function, which is emitted after the main code. The verifier requires all three
    /// arguments, even if the function does not read them.
    pub(super) fn routine(&mut self, routine: Routine, arguments: impl Arguments) {
        let label = self.routine_label(routine);
        self.asm.call_function(label, arguments);
    }

    /// The label of a BPF function, which is emitted after the main code.
    pub(super) fn routine_label(&mut self, routine: Routine) -> Label {
        let known = self.routines.iter().find(|(known, _)| *known == routine);
        known.map(|&(_, label)| label).unwrap_or_else(|| {
            let label = self.asm.label();
            self.routines.push((routine, label));
            label
        })
    }

    fn routines(&mut self) {
        (self.view, self.nested) = (View::Packed, false);
        let mut next = 0;
        while let Some(&(routine, label)) = self.routines.get(next) {
            self.asm.bind(label);
            self.asm.note(format!("{routine:?}"));
            self.asm.set(R6, R1);
            match routine {
                Routine::Walk => self.walk_routine(),
                Routine::Untyped => self.untyped_routine(),
                Routine::Checksum => self.checksum_routine(),
                Routine::Word => self.word_routine(),
                Routine::Quoted => self.quoted_routine(),
                Routine::Hash(ends) => self.hash_routine(ends),
                Routine::Fragments => self.fragments_routine(),
                Routine::Pcap(filter) => self.pcap_routine(self.tree.filters.get(filter)),
                Routine::Own => {
                    if let Role::Keyed { by, .. } = self.role {
                        self.pcap_routine(by.filter());
                    }
                }
            }
            next += 1;
        }
    }

    /// Jumps to `no` unless the packet is IP. Clobbers r2.
    pub(super) fn require_ip(&mut self, no: Label) {
        if !self.view.is_plain() {
            self.require(IPV4 | IPV6, no);
        }
    }

    /// Emits code for each IP version that the packet can have. The packet must be IP. Clobbers r2.
    pub(super) fn by_version(
        &mut self,
        ipv4: impl FnOnce(&mut Self),
        ipv6: impl FnOnce(&mut Self),
    ) {
        let [six, done] = self.asm.labels();
        match self.view {
            View::Packed | View::Kept => self.jump_if_any(IPV6, six),
            View::Plain { ipv6: true, .. } => self.asm.jump(six),
            View::Plain { .. } => {}
        }
        if self.asm.is_live() {
            ipv4(self);
            self.asm.jump(done);
        }
        self.bind_and(six, ipv6);
        self.asm.bind(done);
    }
}

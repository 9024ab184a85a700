//! The rules that decide what to change on a device that captures. They add the changes in an order
//! in which each change works.

use super::{Plan, Step, Target, Wishes};
use crate::facts::{Facts, OFFLOADS};
use crate::interrupts::{Affinity, Interrupt};
use crate::knob::{Knob, Setting};
use crate::settings::{self, ALL, EQUAL, SYMMETRIC};
use fanpcap_linux::process::cpu;

/// Adds the steps for the queues and CPUs of the plan.
pub(super) fn add(facts: &Facts, wishes: Wishes, plan: &mut Plan) {
    let mut rules = Rules {
        facts,
        wishes,
        queues: u32::try_from(plan.receive.len()).unwrap_or(u32::MAX),
        plan,
    };
    rules.offloads();
    rules.pause();
    rules.hash();
    rules.channels();
    rules.rings();
    rules.place();
    rules.xps();
    rules.bystanders();
}

struct Rules<'a> {
    facts: &'a Facts,
    wishes: Wishes,
    queues: u32,
    plan: &'a mut Plan,
}

const GRO: &str = "rx-gro";

const ONE_QUEUE: &str = "both directions of a flow on one queue";

/// Drivers whose hash can be made symmetric, the first kernel that supports it, and the transform.
const SYMMETRIC_HASH: [(&str, (u32, u32), &str); 3] = [
    ("ice", (6, 8), "symmetric-xor"),
    ("iavf", (6, 14), "symmetric-xor"),
    ("mlx5_core", (6, 16), "symmetric-or-xor"),
];

/// Limit for the length of rings. Longer rings cost more in cache misses than they save in packets.
const RING_MOST: u32 = 4096;

impl Rules<'_> {
    fn note(&mut self, text: String) {
        self.plan.notes.push(text);
    }

    /// Adds a step, unless the device has the value already.
    fn set(&mut self, knob: impl Into<Knob>, value: &str, reason: &str) {
        let knob = knob.into();
        let now = self.facts.values.get(&knob);
        if now.is_none_or(|now| now != value) {
            self.plan.steps.push(Step {
                now: now.cloned(),
                target: Target::Knob(knob),
                value: value.to_owned(),
                reason: reason.to_owned(),
            });
        }
    }

    fn is_monitor(&self) -> bool {
        self.wishes.monitor || !self.facts.has_address
    }

    /// Whether threads will poll the queues, on a device whose kernel has this setting. One of
    /// three reasons is enough:
    /// - The user asks for threads.
    /// - Threads poll the queues already.
    /// - The device has no interrupts and is not a veth, so only its threads can be moved to CPUs.
    fn has_threads(&self) -> bool {
        let has_napi = self.facts.napis.is_some_and(|napis| napis > 0);
        let is_threaded = self.facts.value(Knob::Threaded) == Some("on");
        let is_only_choice = self.facts.interrupts.is_empty() && has_napi && !self.is_veth();
        self.facts.value(Knob::Threaded).is_some()
            && (self.wishes.threads || is_threaded || is_only_choice)
    }

    fn is_veth(&self) -> bool {
        self.facts.driver == "veth"
    }

    fn offloads(&mut self) {
        if !self.is_monitor() {
            self.note(
                "the host has an address on this device: GRO and pause frames stay as they are, and \
                 a capture may see merged segments; --monitor treats it as a port that only captures"
                    .to_owned(),
            );
            return;
        }
        for (name, reason) in OFFLOADS {
            let knob = Knob::from(Setting::Feature(name.to_owned()));
            if name == GRO && self.is_veth() && self.has_threads() {
                self.gro_for_threads(knob);
                continue;
            }
            if self.facts.value(knob.clone()) != Some("on") {
                continue;
            }
            match self.facts.fixed.iter().any(|fixed| fixed == name) {
                true => self.note(format!("{name} can't be turned off: {reason}")),
                false => self.set(knob, "off", reason),
            }
        }
    }

    /// A veth device has NAPI instances, and therefore threads, only while GRO is on or an XDP
    /// program is attached.
    fn gro_for_threads(&mut self, gro: Knob) {
        let is_on = self.facts.value(gro.clone()) == Some("on");
        if !is_on && self.facts.napis.is_some_and(|napis| napis > 0) {
            return;
        }
        let why = "a veth device has NAPI instances, and so threads, only with GRO";
        self.set(gro, "on", why);
        self.note("segments may be merged: --threads needs GRO on a veth device".to_owned());
    }

    fn pause(&mut self) {
        let now = self.facts.value(Setting::Pause).unwrap_or_default();
        if self.is_monitor() && (now.contains("rx=on") || now.contains("tx=on")) {
            let why = "a full ring must not stop the network that is watched";
            self.set(Setting::Pause, "autoneg=off,rx=off,tx=off", why);
        }
    }

    /// Puts both directions of a flow on the same queue.
    fn hash(&mut self) {
        let facts = self.facts;
        if self.queues < 2 {
            return;
        }
        let transform = facts.value(Setting::Transform);
        if transform.is_some_and(|it| it.starts_with("symmetric")) {
            return;
        }
        let able = SYMMETRIC_HASH
            .iter()
            .find(|it| it.0 == facts.driver && it.1 <= facts.kernel);
        if let (Some((_, _, name)), Some(_)) = (able, transform) {
            return self.set(Setting::Transform, name, ONE_QUEUE);
        }
        let Some(key) = facts.value(Setting::Key) else {
            let one = "the device does not show its hash: the directions of a flow may come on two \
                       queues; mode 'flow' still brings both to one member";
            return self.note(one.to_owned());
        };
        if *key != settings::hex(&settings::symmetric_key(key.len() / 2)) {
            self.set(Setting::Key, SYMMETRIC, ONE_QUEUE);
            self.note(
                "the symmetric key 6d:5a hashes to 16 bits only: few flows may spread unevenly"
                    .to_owned(),
            );
        }
    }

    fn channels(&mut self) {
        if self.facts.channels.is_none() {
            return self.table();
        }
        let now = self.facts.rx_queues();
        // Not every driver changes its table with its channels. While entries name a queue that is
        // to be removed, a driver may refuse to remove the queue, or packets may be lost
        // afterwards.
        if self.queues < now {
            self.table();
        }
        if self.queues != now {
            let kind = match self.is_combined() {
                true => "combined",
                false => "rx",
            };
            let why = match (self.queues < now, self.facts.missed) {
                (true, _) => "one queue for each CPU that receives",
                (false, 0) => "as many queues as asked for",
                (false, _) => "the device had no room for packets: more queues, one for each CPU",
            };
            let value = format!("{kind}={}", self.queues);
            self.set(Knob::Channels, &value, why);
            if self.is_veth() && self.queues > now {
                let few = "a veth device receives on as many queues as its other end sends by";
                self.note(few.to_owned());
            }
        }
        if self.queues >= now {
            self.table();
        }
    }

    /// Whether each channel of the device receives and sends.
    fn is_combined(&self) -> bool {
        self.facts.channels.is_some_and(|it| it.most[3] > 0)
    }

    /// Gives all queues equal parts of the table.
    fn table(&mut self) {
        let Some(table) = self.facts.value(Setting::Table) else {
            return;
        };
        let entries = table.split(',').count();
        let value = settings::table_text(&settings::equal(entries, self.queues));
        if value != table {
            let why = "the same share of the hash for each queue";
            self.set(Setting::Table, &format!("{EQUAL}{}", self.queues), why);
        }
    }

    /// Doubles the rings, but only if the device dropped packets.
    fn rings(&mut self) {
        let Some(rings) = self.facts.rings.filter(|_| self.facts.missed > 0) else {
            return;
        };
        let wanted = rings.rx.saturating_mul(2).min(rings.most[0]).min(RING_MOST);
        if wanted > rings.rx {
            let why = format!("the device had no room for {} packets", self.facts.missed);
            self.set(
                Setting::Rings,
                &format!("rx={wanted},tx={}", rings.tx),
                &why,
            );
        }
    }

    /// Pins each queue to its CPU, by threads, interrupts or packet steering.
    fn place(&mut self) {
        let receive = self.plan.receive.clone();
        let queues = (0..).zip(receive);
        if self.has_threads() {
            self.set(
                Knob::Threaded,
                "on",
                "a thread polls each queue, on a CPU of its own",
            );
            queues.for_each(|(queue, cpu)| {
                let why = "each queue's thread on a CPU of its own";
                self.set(Knob::Napi(queue), &cpu.to_string(), why);
            });
            return;
        }
        if self.facts.interrupts.is_empty() {
            return match self.facts.is_up || self.facts.driver.is_empty() || self.is_veth() {
                true if self.wishes.on_engine => self.note(
                    "the XDP engine takes the packets before packet steering (RPS) could move them: \
                     --threads moves the queues to their CPUs"
                        .to_owned(),
                ),
                // Receive packet steering (RPS) moves a queue to its CPU.
                true => self.place_queues(
                    Setting::Rps,
                    true,
                    "the device has no interrupts: packet steering moves the queue to its CPU",
                ),
                false => self.note("the device is down: run this again when it is up".to_owned()),
            };
        }
        let before = self.plan.steps.len();
        for (channel, cpu) in queues {
            self.interrupt(channel, cpu);
        }
        self.leave_alone(before);
        self.unsteer();
    }

    /// If the plan has steps for interrupts from step `at` on, inserts a step before them. This
    /// step makes irqbalance leave the interrupts alone.
    fn leave_alone(&mut self, at: usize) {
        if let Some(now) = self.facts.value(Setting::Irqbalance) {
            if self.plan.steps.len() > at {
                let step = Step {
                    target: Target::Knob(Setting::Irqbalance.into()),
                    now: Some(now.to_owned()),
                    value: ALL.to_owned(),
                    reason: "irqbalance must not move the device's interrupts".to_owned(),
                };
                self.plan.steps.insert(at, step);
            }
        }
    }

    fn interrupt(&mut self, channel: u32, cpu: usize) {
        let of = |it: &&(Interrupt, Affinity)| it.0.serves.channel() == Some(channel);
        let own: Vec<_> = self.facts.interrupts.iter().filter(of).collect();
        if !own.is_empty() && own.iter().all(|it| it.1.asked == [cpu]) {
            return;
        }
        let mut lists: Vec<String> = own.iter().map(|it| cpu::list_text(&it.1.asked)).collect();
        lists.dedup();
        self.plan.steps.push(Step {
            target: Target::Channel(channel),
            now: (!lists.is_empty()).then(|| lists.join(" and ")),
            value: cpu.to_string(),
            reason: "each queue's interrupt on a CPU of its own".to_owned(),
        });
    }

    /// Sets a setting of each queue to the queue's CPU, if the device has this setting. A queue
    /// that the device gets by an earlier step has the settings of queue 0, if it `is_added`.
    fn place_queues(&mut self, setting: fn(u32) -> Setting, is_added: bool, why: &str) {
        for (queue, cpu) in (0..).zip(self.plan.receive.clone()) {
            let model = match is_added && queue >= self.facts.rx_queues() {
                true => 0,
                false => queue,
            };
            if self.facts.value(setting(model)).is_some() {
                self.set(setting(queue), &cpu.to_string(), why);
            }
        }
    }

    /// Turns RPS off for the queues whose interrupts are placed, because RPS would move the packets
    /// to other CPUs.
    fn unsteer(&mut self) {
        for queue in 0..self.queues {
            let now = self.facts.value(Setting::Rps(queue));
            if now.is_some_and(|now| !now.is_empty()) {
                let why = "the interrupt's CPU receives; steering would move packets once more";
                self.set(Setting::Rps(queue), "", why);
            }
        }
    }

    /// Sends the host's packets through the queue of the sending CPU.
    fn xps(&mut self) {
        if self.facts.has_address {
            let why = "each CPU sends by the queue that it serves";
            self.place_queues(Setting::Xps, self.is_combined(), why);
        }
    }

    fn bystanders(&mut self) {
        let places_interrupts = |it: &Step| matches!(it.target, Target::Channel(_));
        let is_asked = self.facts.value(Setting::Irqbalance).is_some();
        let moves = !is_asked && self.plan.steps.iter().any(places_interrupts);
        if let Some(pid) = self.facts.irqbalance.filter(|_| moves) {
            let irqs = self
                .facts
                .interrupts
                .iter()
                .filter(|it| it.0.serves.channel().is_some());
            let list: Vec<String> = irqs.map(|it| format!("--banirq={}", it.0.number)).collect();
            self.note(format!(
                "irqbalance (process {pid}) may move the interrupts again: add {} to its options, \
                 in /etc/default/irqbalance on Debian",
                list.join(" ")
            ));
        }
    }
}

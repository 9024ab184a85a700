//! The actions of a schedule, drawn from its seed.

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::RngCore;

use super::super::recorder::End;

/// The least and the greatest number of members.
const LEAST: usize = 2;
const MOST: usize = 7;

/// The number of steps of a schedule, and the greatest number of simultaneous actions in a step.
const STEPS: usize = 7;
const ACTIONS: u64 = 3;

const ENDS: [End; 4] = [End::Leaves, End::LeavesMuch, End::Killed, End::HangsFirst];

/// An action on a group. Members are numbered in the order in which they join.
#[derive(Clone, Copy, Debug)]
pub(super) enum Action {
    /// A member joins. If `name` is a number, the member gets the name that belongs to this number.
    Join { name: Option<usize> },
    /// A member ends.
    End { member: usize, how: End },
    /// A member gets another weight; 0 drains it.
    Weigh { member: usize, weight: u16 },
    /// A member is stopped for `ms` milliseconds.
    Stop { member: usize, ms: u64 },
    /// All members are stopped for `ms` milliseconds.
    Freeze { ms: u64 },
    /// A member is stopped for longer than the time of silence, until [`Action::GoOn`].
    Hang { member: usize },
    /// A member that hangs goes on.
    GoOn { member: usize },
    /// A member sets its filter while nothing is sent, because packets that come during the change
    /// would be lost.
    Filter { member: usize },
}

/// The plan's data of a member.
#[derive(Clone, Copy)]
struct Member {
    name: Option<usize>,
    weight: u16,
    is_there: bool,
    hangs: bool,
    /// The current step already acts on this member. A step acts on a member at most once.
    is_taken: bool,
}

/// Draws the steps of a schedule.
pub(super) struct Plan {
    random: Pcg64Mcg,
    members: Vec<Member>,
}

impl Plan {
    /// The steps of a schedule. In the first step, the first members join one by one. At the end no
    /// member hangs.
    pub(super) fn of(seed: u64) -> Vec<Vec<Action>> {
        let mut plan = Self {
            random: Pcg64Mcg::new((u128::from(seed) << 64) | 0x5eed),
            members: Vec::new(),
        };
        let first = LEAST + plan.below(3);
        let mut steps = vec![(0..first).map(|_| plan.join()).collect()];
        steps.extend((0..STEPS).map(|_| plan.step()));
        steps.extend(plan.go_on().map(|last| vec![last]));
        steps
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.random.next_u64() % end as u64).unwrap_or(0)
    }

    fn step(&mut self) -> Vec<Action> {
        for member in &mut self.members {
            member.is_taken = !member.is_there || member.hangs;
        }
        let count = 1 + self.random.next_u64() % ACTIONS;
        let mut actions = Vec::new();
        for _ in 0..count {
            self.draw(&mut actions);
            if actions.iter().any(|it| matches!(it, Action::Filter { .. })) {
                break;
            }
        }
        actions
    }

    fn draw(&mut self, actions: &mut Vec<Action>) {
        let there = self.members.iter().filter(|it| it.is_there).count();
        match self.below(13) {
            0..=2 if there < MOST => actions.push(self.join()),
            3..=5 => self.end(actions),
            6 => self.weigh(0, actions),
            7 => {
                let weight = 1 + self.random.next_u32().to_le_bytes()[0] % 4;
                self.weigh(weight.into(), actions);
            }
            8 | 9 => {
                let ms = 20 + self.random.next_u64() % 400;
                let member = self.take(|_| true);
                actions.extend(member.map(|member| Action::Stop { member, ms }));
            }
            10 => actions.push(Action::Freeze {
                ms: 20 + self.random.next_u64() % 300,
            }),
            // Before it sets a filter, the schedule waits until all members wait for packets.
            11 if actions.is_empty() && self.members.iter().all(|it| !it.hangs) => {
                let member = self.take(|_| true);
                actions.extend(member.map(|member| Action::Filter { member }));
            }
            12 => actions.extend(self.go_on().or_else(|| self.hang())),
            _ => {}
        }
    }

    /// A newcomer joins. One newcomer in three has a name.
    fn join(&mut self) -> Action {
        let number = self.members.len();
        let name = (self.below(3) == 0).then_some(number);
        self.come(name)
    }

    fn come(&mut self, name: Option<usize>) -> Action {
        self.members.push(Member {
            name,
            weight: 1,
            is_there: true,
            hangs: false,
            is_taken: true,
        });
        Action::Join { name }
    }

    /// A member ends, if enough members that had a share before this step are left. Every second
    /// named member gets a successor.
    fn end(&mut self, actions: &mut Vec<Action>) {
        let how = ENDS[self.below(ENDS.len())];
        if let Some(member) = self.take_one_of_several() {
            self.members[member].is_there = false;
            actions.push(Action::End { member, how });
            let name = self.members[member].name;
            if name.is_some() && self.below(2) == 0 {
                actions.push(self.come(name));
            }
        }
    }

    /// Gives another weight to a member without a name. Members with names keep their weights,
    /// because a successor gets its predecessor's buckets whatever its own weight is.
    fn weigh(&mut self, weight: u16, actions: &mut Vec<Action>) {
        let member = match weight {
            0 => self.take_one_of_several(),
            _ => self.take(|it| it.name.is_none()),
        };
        let member = member.filter(|&it| self.members[it].name.is_none());
        if let Some(member) = member {
            self.members[member].weight = weight;
            actions.push(Action::Weigh { member, weight });
        }
    }

    /// A member hangs, if enough other members have a share.
    fn hang(&mut self) -> Option<Action> {
        let member = self.take_one_of_several()?;
        self.members[member].hangs = true;
        Some(Action::Hang { member })
    }

    /// The member that hangs goes on.
    fn go_on(&mut self) -> Option<Action> {
        let member = self.members.iter().position(|it| it.hangs)?;
        self.members[member].hangs = false;
        Some(Action::GoOn { member })
    }

    fn take_one_of_several(&mut self) -> Option<usize> {
        let keeps = |it: &&Member| it.is_there && !it.is_taken && it.weight > 0;
        match self.members.iter().filter(keeps).count() {
            0..=LEAST => None,
            _ => self.take(|it| it.weight > 0),
        }
    }

    fn take(&mut self, is_one: impl Fn(&Member) -> bool) -> Option<usize> {
        let free = |it: &(usize, &Member)| it.1.is_there && !it.1.is_taken && is_one(it.1);
        let free: Vec<usize> = self
            .members
            .iter()
            .enumerate()
            .filter(free)
            .map(|it| it.0)
            .collect();
        let chosen = free.get(self.below(free.len().max(1))).copied();
        if let Some(member) = chosen {
            self.members[member].is_taken = true;
        }
        chosen
    }
}

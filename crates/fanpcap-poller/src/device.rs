//! A device that a poller serves: its queues, its groups, and its members. One thread changes all
//! of them, and reads no clock: the caller passes the time.

mod refusals;
mod steering;
mod together;
mod member;
mod groups;
mod notice;
mod successors;
mod attending;
mod beside;
mod look;
mod watching;

use crate::access::{Access, Grant};
use crate::accounts::{Account, Accounts};
use crate::fan_out::GROUPS_MAX;
use crate::group::GroupCounts;
use crate::limits::{Limits, Policy, Taken};
use crate::queue::{Polled, Queue};
use crate::sender::{Sender, SentCounts};
use crate::shared::{ClosedThere, Left, Shared, UserThread};
use crate::source::SourceCounts;
pub(crate) use attending::DueGroup;
use fanpcap_group::served::Joining;
use fanpcap_group::view::View;
use fanpcap_linux::unix::Peer;
use fanpcap_poll::message::{Hello, Refused, Welcome};
use fanpcap_poll::{LANES_MAX, PoolSize};
use groups::Group;
use member::{Member, Newcomer, State};
pub use notice::{Notice, Told};
use refusals::{FULL, NO_MEMORY, NOT_ALLOWED, failed};
pub(crate) use refusals::{MANY_CONNECTIONS, refused};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use together::Neighbors;
pub use together::Together;
pub(crate) use watching::Watch;

/// Bytes of a block, and of a pool if the member asks for no size.
const BLOCK_LEN: u32 = 1 << 20;
const POOL_LEN: u32 = 64 << 20;

/// The user who may see and change the groups of all users.
const ROOT: u32 = 0;

/// A device that this process polls.
#[derive(Debug)]
pub struct Device {
    queues: Vec<Queue>,
    ifindex: u32,
    hardware: u16,
    policy: Policy,
    accounts: Accounts,
    access: Access,
    /// The groups, by their numbers in the queues.
    groups: Vec<Option<Group>>,
    members: BTreeMap<u64, Member>,
    /// The threads of the users that have members.
    threads: BTreeMap<Account, UserThread>,
    /// The number of the last member.
    last: u64,
    /// Pools that the poller has given up, and other processes may still have.
    left: Vec<LeftPool>,
    /// Closes the watches of these pools. It starts with the first member.
    closer: Option<UserThread>,
    /// The counts of groups that have ended.
    ended: GroupCounts,
    /// What connections watch.
    watches: BTreeMap<u64, Watch>,
    /// Sends the frames of members; `None` if they may not send.
    sender: Option<Sender>,
    /// The poller's other devices.
    neighbors: Neighbors,
}

/// A pool that the poller has given up.
#[derive(Debug)]
struct LeftPool {
    pool: Left,
    account: Account,
    bytes: u64,
}

/// A newcomer that has become a member.
#[derive(Debug)]
pub struct Entered {
    /// The member's number.
    pub member: u64,
    /// The answer.
    pub welcome: Welcome,
    /// The member's pool.
    pub pool: Shared,
    /// The member's end of the bell.
    pub bell: ClosedThere,
}

impl Entered {
    /// The descriptors that the answer carries.
    pub fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        [self.pool.as_fd(), self.bell.as_fd()]
    }
}

impl Device {
    /// The device with these queues, of which queue `n` is the lane `n` of each pool. `ifindex` and
    /// `hardware` are the device's index and its hardware type (`ARPHRD_*`, linux/if_arp.h).
    ///
    /// # Errors
    /// `InvalidInput` for more queues than a pool has lanes ([`LANES_MAX`]), and for no queue.
    pub fn new(
        queues: Vec<Queue>,
        ifindex: u32,
        hardware: u16,
        policy: Policy,
    ) -> io::Result<Self> {
        if !(1..=LANES_MAX as usize).contains(&queues.len()) {
            let text = format!(
                "a poller takes 1 to {LANES_MAX} receive queues of a device, not {}: set fewer \
                 channels (ethtool -L)",
                queues.len()
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        Ok(Self {
            queues,
            ifindex,
            hardware,
            policy,
            accounts: Accounts::default(),
            access: Access::without_rules(),
            groups: (0..GROUPS_MAX).map(|_| None).collect(),
            members: BTreeMap::new(),
            threads: BTreeMap::new(),
            last: 0,
            left: Vec::new(),
            closer: None,
            ended: GroupCounts::default(),
            watches: BTreeMap::new(),
            sender: None,
            neighbors: Neighbors::none()?,
        })
    }

    /// Lets users count for others in the limits.
    pub fn with_accounts(mut self, accounts: Accounts) -> Self {
        self.accounts = accounts;
        self
    }

    /// The user for whom a user counts.
    pub(crate) fn account(&mut self, user: u32) -> Account {
        self.accounts.account(user)
    }

    /// The device with these rules about who may become a member.
    #[must_use]
    pub fn with_access(self, access: Access) -> Self {
        Self { access, ..self }
    }

    /// What a process of this user may take, which is in these groups of users. Another process of
    /// the user may have another grant.
    ///
    /// # Errors
    /// The answer to a process that may not become a member.
    pub fn let_in(&self, user: u32, groups: &[u32]) -> Result<Grant, Refused> {
        let grant = self.access.of(user, groups);
        grant.ok_or_else(|| refused("poller-policy", NOT_ALLOWED))
    }

    /// The device, whose members may send frames by this sender.
    #[must_use]
    pub fn sending(self, sender: Sender) -> Self {
        Self {
            sender: Some(sender),
            ..self
        }
    }

    /// Sends a member's frame. `None` if members may not send.
    pub(crate) fn send(&mut self, frame: &[u8]) -> Option<()> {
        self.sender.as_mut()?.send(frame);
        Some(())
    }

    /// What became of the frames of members.
    pub fn sent(&self) -> SentCounts {
        self.sender.as_ref().map(Sender::counts).unwrap_or_default()
    }

    /// Makes a newcomer a member of its group. `peer` is its process, which may take what `grant`
    /// gives ([`Device::let_in`]). The first member begins the group. Groups of other users are
    /// other groups, also if they have the same number.
    ///
    /// # Errors
    /// The answer to the newcomer.
    pub fn enter(
        &mut self,
        hello: &Hello,
        (peer, grant): (Peer, Grant),
        now_ns: u64,
    ) -> Result<Entered, Refused> {
        self.check_poller(hello)?;
        let limits = grant.limits(self.policy.limits);
        let number = match hello.wants_number {
            true => self.unused_number(peer.user),
            false => hello.group,
        };
        let (index, is_new) = match self.find(number, peer.user) {
            Some(index) => {
                self.check(index, hello, &grant)?;
                (index, false)
            }
            None => {
                let has = (&limits, grant.filter);
                (self.begin(hello, (number, peer.user), has, now_ns)?, true)
            }
        };
        let checked = self.check_beside(index, hello);
        let entered = checked.and_then(|()| self.join(index, hello, (peer, &limits), now_ns));
        if is_new && entered.is_err() {
            self.end(index);
        }
        entered
    }

    fn join(
        &mut self,
        index: u8,
        hello: &Hello,
        (peer, limits): (Peer, &Limits),
        now_ns: u64,
    ) -> Result<Entered, Refused> {
        let size = self.size(hello.memory);
        let account = self.account(peer.user);
        let bytes = size.file_len().unwrap_or(u32::MAX).into();
        self.check_bytes(account, limits, bytes)?;
        if self.closer.is_none() {
            let closer = UserThread::for_left_pools();
            self.closer = Some(closer.map_err(|error| failed(&error))?);
        }
        let kind = (self.policy.pools, size);
        let thread = match self.threads.entry(account) {
            Entry::Occupied(it) => it.into_mut(),
            Entry::Vacant(it) => {
                it.insert(UserThread::start(account).map_err(|error| failed(&error))?)
            }
        };
        let newcomer = Newcomer::new(kind, (index, account), hello, thread, now_ns);
        let mut newcomer = newcomer.map_err(|error| {
            self.end_thread(account);
            failed(&error)
        })?;
        self.last += 1;
        let member = self.last;
        newcomer.member.pid = peer.pid;
        newcomer.member.pair = self.pair(index, hello.pair);
        let joining = Joining {
            member,
            pid: peer.pid,
            weight: hello.weight,
            class: hello.class,
            name: hello.name.as_deref(),
            pair: newcomer.member.pair,
        };
        let pool = newcomer.member.pool.clone();
        self.members.insert(member, newcomer.member);
        let slot = self.change(index, now_ns, Some(newcomer.admission), |group, side| {
            group.join(&joining, side)
        });
        let Some(Ok(Some(slot))) = slot else {
            drop(pool);
            self.remove(member);
            return Err(refused("poller-full", FULL));
        };
        let welcome = Welcome {
            pool: size,
            slot,
            ifindex: self.ifindex,
            hardware: self.hardware,
            group: self.number(index),
            may_send: self.sender.is_some(),
            steering: self.steering(index, hello),
            poller: self.neighbors.poller(),
        };
        Ok(Entered {
            member,
            welcome,
            pool,
            bell: newcomer.bell,
        })
    }

    /// Checks that a user with these limits may take so many bytes more.
    fn check_bytes(
        &mut self,
        account: Account,
        limits: &Limits,
        bytes: u64,
    ) -> Result<(), Refused> {
        self.left.retain(|it| it.pool.exists());
        let pools = self.members.values().map(|it| (it.account, it.len()));
        let left = self.left.iter().map(|it| (it.account, it.bytes));
        let groups = self.groups.iter().flatten();
        let groups = groups.map(|it| (it.account, it.bytes));
        let taken: Taken = pools.chain(left).chain(groups).collect();
        let checked = limits.bytes.check(&taken, account, bytes);
        checked.map_err(|reached| refused("poller-memory", NO_MEMORY.of(reached)))
    }

    /// Gives up a member's pool. It counts for its user as long as any process has it.
    fn remove(&mut self, member: u64) {
        if let Some(it) = self.members.remove(&member) {
            self.note_removed(member, &it);
            let (account, bytes) = (it.account, it.len());
            let closer = self.closer.as_ref();
            let left = closer.and_then(|closer| it.pool.left(closer));
            let left = left.map(|pool| LeftPool {
                pool,
                account,
                bytes,
            });
            self.left.extend(left);
            self.end_thread(account);
        }
    }

    /// Ends the thread of a user that has no member.
    fn end_thread(&mut self, account: Account) {
        if !self.members.values().any(|it| it.account == account) {
            self.threads.remove(&account);
        }
    }

    /// The size of a pool for a member that asks for so many bytes: two blocks or more for each
    /// queue.
    fn size(&self, bytes: Option<u32>) -> PoolSize {
        let lanes = u32::try_from(self.queues.len()).unwrap_or(u32::MAX);
        let blocks = bytes.unwrap_or(POOL_LEN) / BLOCK_LEN;
        PoolSize {
            lanes,
            block_len: BLOCK_LEN,
            // The words take one block.
            blocks: blocks.saturating_sub(1).clamp((2 * lanes).max(3), 255),
        }
    }

    /// The member's application looks for packets for the first time. Later calls do nothing.
    pub fn reads(&mut self, member: u64, now_ns: u64) -> Vec<Notice> {
        let it = self.members.get_mut(&member);
        let Some(it) = it.filter(|it| it.state == State::Unread) else {
            return Vec::new();
        };
        it.state = State::Reads;
        let index = it.group;
        self.attend(index, now_ns)
    }

    /// A member has read the pool of the member `gone` to its end.
    pub fn read_out(&mut self, member: u64, gone: u64, now_ns: u64) -> Vec<Notice> {
        let index = self.members.get(&member).map(|it| it.group);
        let of_gone = self.members.get(&gone);
        let it = of_gone.filter(|it| it.taker == Some(member) && Some(it.group) == index);
        let Some(index) = it.map(|it| it.group) else {
            // A member may say so of any member.
            return Vec::new();
        };
        self.vacate(gone, now_ns);
        self.attend(index, now_ns)
    }

    /// A member's connection has closed.
    pub fn hang_up(&mut self, member: u64, now_ns: u64) -> Vec<Notice> {
        let Some(it) = self.members.get_mut(&member) else {
            return Vec::new();
        };
        it.state = State::Gone;
        it.gone_ns = now_ns;
        it.note_taken();
        let index = it.group;
        // Other members read the pools that this member has not read to their ends.
        for it in self.members.values_mut() {
            it.taker = it.taker.filter(|taker| *taker != member);
        }
        self.attend(index, now_ns)
    }

    /// Whether this message still holds: a pool may have got another reader since.
    pub(crate) fn is_valid(&self, notice: &Notice) -> bool {
        let Told::Takeover(takeover, _) = &notice.what else {
            return true;
        };
        let gone = self.members.get(&takeover.member);
        gone.is_some_and(|it| it.taker == Some(notice.to))
    }

    /// The members of a user's group, and the group's counts in all queues. `None` if there is no
    /// such group.
    pub fn look(&self, number: Option<u16>, user: u32) -> Option<(View, GroupCounts)> {
        let index = self.find(number, user)?;
        let group = self.groups.get(usize::from(index))?.as_ref()?;
        let mut sum = GroupCounts::default();
        for queue in &self.queues {
            sum.add_all(&queue.change(move |queue| queue.fan_out.counts(index))??);
        }
        Some((group.served.look(), sum))
    }

    /// The receive queues.
    pub fn queues(&self) -> &[Queue] {
        &self.queues
    }

    /// The sum of the last counts of all groups that have ended.
    pub fn ended(&self) -> GroupCounts {
        self.ended
    }

    /// The counts of each queue, and the sum of all groups, those included that have ended. Both of
    /// a queue are of the same moment. `None` if a queue's thread has ended.
    pub fn counts(&self) -> Option<(Vec<SourceCounts>, GroupCounts)> {
        self.counts_after(|_| ())
    }

    /// Takes no more packets. Returns the last [`Device::counts`]: members get no packet that is
    /// not counted.
    pub fn finish(&self) -> Option<(Vec<SourceCounts>, GroupCounts)> {
        self.counts_after(Polled::finish)
    }

    fn counts_after(&self, change: fn(&mut Polled)) -> Option<(Vec<SourceCounts>, GroupCounts)> {
        let (mut queues, mut sum) = (Vec::new(), self.ended);
        for queue in &self.queues {
            let counts = queue.change(move |queue| {
                change(queue);
                (queue.state().0, queue.fan_out.all_counts())
            });
            let (of_source, of_groups) = counts?;
            queues.push(of_source);
            sum.add_all(&of_groups);
        }
        Some((queues, sum))
    }

    /// The number of groups, and of members, those included whose pools are still read.
    pub fn sizes(&self) -> [usize; 2] {
        let groups = self.groups.iter().flatten().count();
        [groups, self.members.len()]
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.policy.limits
    }
}

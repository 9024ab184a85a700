//! Lets the device do what is due. This takes long for a large group, so the time counts for the
//! group's user, as that of the user's messages does.

use super::Server;
use super::times::Ready;
use crate::device::DueGroup;
use fanpcap_linux::wait::clock;

impl From<DueGroup> for Ready {
    fn from(group: DueGroup) -> Self {
        Self {
            account: group.account,
            served: group.due_ns,
            number: group.index.into(),
        }
    }
}

impl Server {
    /// Does what is due, until that has taken long. What is left comes in the next turn.
    pub(super) fn tick(&mut self) {
        let now_ns = clock::monotonic_ns();
        self.device.hear();
        let due = self.device.due_groups(now_ns).into_iter();
        let mut due: Vec<Ready> = due.map(Ready::from).collect();
        // To look after a group may take longer than a part does, so others' groups come first.
        self.times.begin_part();
        self.times.sort(&mut due);
        for it in due {
            let begin_ns = clock::thread_cpu_ns();
            if let Ok(index) = u8::try_from(it.number) {
                let notices = self.device.tick_group(index, now_ns);
                self.tell(notices);
            }
            if !self
                .times
                .add(it.account, clock::thread_cpu_ns() - begin_ns)
            {
                break;
            }
        }
    }
}

//! Members of steered groups join, leave, hang and die under load. The flows of other members must
//! not move, and no packet may be lost, delivered twice, or delivered to two members.

mod records;
mod wires;
mod load;
mod table;
mod story;
mod recorder;
mod change;
mod scene;
mod joins;
mod sticky;
mod sizes;
mod deaths;
mod takeover;
mod silent;
mod stopped;
mod unread;
mod apart;
mod relinked;
mod weights;
mod balanced;
mod drained;
mod device_groups;
mod on_xdp;
mod classes;
mod copies;
mod watch;
mod schedules;
mod poller_ends;

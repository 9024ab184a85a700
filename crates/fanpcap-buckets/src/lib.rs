//! Divides the buckets of a group among its members with the fewest moves.
//!
//! A packet's hash selects a **bucket**, and the group's table has the **slot** that owns the
//! bucket. A slot is a position in the kernel's array of a group's sockets. When a member joins,
//! leaves or changes its weight, [`plan`] returns the buckets that get another owner. All other
//! buckets, and the flows in them, keep their owner. Steering programs that name a member by number
//! use **ranks** instead: [`ranks`] keeps the list of ranks. [`plan_beside`] plans for a second
//! device, by which the other directions of the same flows come. [`leveling`] moves buckets by
//! their measured load.
//!
//! This crate only computes. `fanpcap-group` maps the table and stores the results.
//!
//! ```
//! use fanpcap_buckets::{Owners, Share, Slot, layout, plan};
//!
//! let mut owners: Owners = [None; layout::BUCKETS];
//! let mut shares = vec![Share { slot: Slot(0), weight: 1 }];
//! for step in plan(&owners, &shares) {
//!     owners[step.bucket] = Some(step.to);
//! }
//! shares.push(Share { slot: Slot(1), weight: 1 });
//! assert_eq!(plan(&owners, &shares).len(), layout::BUCKETS / 2);
//! ```
#![forbid(unsafe_code)]

pub mod layout;
mod slot;
mod quota;
mod plan;
mod beside;
mod ranks;
pub mod leveling;

pub use beside::plan_beside;
pub use plan::{Move, Owners, plan};
pub use ranks::ranks;
pub use slot::{Share, Slot};

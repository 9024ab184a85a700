//! What the rings of all layouts have in common.

use crate::frame::{Corrupt, Frame};
use crate::position::Mark;

/// A ring of one layout. A reader's code for each packet is generic, and compiled for each layout.
pub trait Layout {
    /// Whether each frame tells how fast the ring fills, because the ring has one packet in each.
    const IS_OF_FRAMES: bool = false;

    /// The number of frames that this reader and the readers before it have taken.
    fn taken(&self) -> u64;

    /// The mark of the block that is being read; between two blocks, the mark of the next one.
    /// `None` if the layout has no marks: a pool itself has the positions up to which it was read.
    #[inline]
    fn mark(&self) -> Option<Mark> {
        None
    }

    /// The next frame; `None` if no frame is left that can be read at once.
    ///
    /// # Errors
    /// An offset or length leads out of the ring's memory.
    fn next_frame(&mut self) -> Result<Option<Frame<'_>>, Corrupt>;
}

//! What a Node says of itself, by its condition Ready.

/// Whether a Node is well, and if not, since when. Times are in seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Health {
    /// Its condition Ready is True.
    #[default]
    Ready,
    /// It is False: the kubelet answers, and says that something is wrong.
    NotReady {
        /// Since when.
        since: i64,
    },
    /// It is Unknown or absent: the kubelet does not answer, or has never done so.
    Unknown {
        /// Since when.
        since: i64,
    },
}

impl Health {
    /// From the status of the condition, and since when it has that.
    pub fn read(status: Option<&str>, since: i64) -> Self {
        match status {
            Some("True") => Self::Ready,
            Some("False") => Self::NotReady { since },
            _ => Self::Unknown { since },
        }
    }

    /// Whether the Node is Ready.
    pub fn is_ready(self) -> bool {
        self == Self::Ready
    }

    /// Whether nobody knows how it is: what is asked of its kubelet now happens at some other time.
    pub fn is_unknown(self) -> bool {
        matches!(self, Self::Unknown { .. })
    }

    /// Since when it is not Ready.
    pub fn since(self) -> Option<i64> {
        match self {
            Self::Ready => None,
            Self::NotReady { since } | Self::Unknown { since } => Some(since),
        }
    }
}

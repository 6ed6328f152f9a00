//! The pinned module sets and how each program is built from them.

use sha2::{Digest, Sha256};

use crate::hash::hex;

/// A program we start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "their names say it")]
pub enum Binary {
    Etcd,
    KubeApiserver,
    KubeControllerManager,
    KubeScheduler,
    Kubectl,
    Kwok,
    Kubelet,
    KubeProxy,
    Containerd,
    ContainerdShim,
    Ctr,
}

impl Binary {
    /// The program's file name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::KubeApiserver => "kube-apiserver",
            Self::KubeControllerManager => "kube-controller-manager",
            Self::KubeScheduler => "kube-scheduler",
            Self::Kubectl => "kubectl",
            Self::Kwok => "kwok",
            Self::Kubelet => "kubelet",
            Self::KubeProxy => "kube-proxy",
            Self::Containerd => "containerd",
            Self::ContainerdShim => "containerd-shim-runc-v2",
            Self::Ctr => "ctr",
        }
    }

    /// The module set it is built from.
    pub(super) fn module(self) -> Module {
        match self {
            Self::Etcd => Module::Etcd,
            Self::Kwok => Module::Kwok,
            Self::Containerd | Self::ContainerdShim | Self::Ctr => Module::Containerd,
            _ => Module::Kubernetes,
        }
    }

    /// The Go package of its `main`.
    pub(super) fn package(self) -> String {
        match self.module() {
            Module::Etcd => "go.etcd.io/etcd/server/v3".to_owned(),
            Module::Kwok => "sigs.k8s.io/kwok/cmd/kwok".to_owned(),
            Module::Kubernetes => format!("k8s.io/kubernetes/cmd/{}", self.name()),
            Module::Containerd => format!("github.com/containerd/containerd/v2/cmd/{}", self.name()),
        }
    }

    /// How to ask for its version.
    pub(super) fn version_args(self) -> &'static [&'static str] {
        match self {
            Self::Kubectl => &["version", "--client"],
            Self::ContainerdShim => &["-v"],
            _ => &["--version"],
        }
    }

    /// What its answer must hold to be usable.
    pub(super) fn version_prefix(self) -> &'static str {
        match self.module() {
            Module::Etcd => "3.6.",
            Module::Kwok => "v0.8.",
            Module::Kubernetes => "v1.36.",
            Module::Containerd => "2.",
        }
    }
}

/// One pinned set of Go modules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Module {
    Etcd,
    Kubernetes,
    Kwok,
    Containerd,
}

impl Module {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::Kubernetes => "kubernetes",
            Self::Kwok => "kwok",
            Self::Containerd => "containerd",
        }
    }

    pub(super) fn go_mod(self) -> &'static str {
        match self {
            Self::Etcd => include_str!("../../upstream/etcd/go.mod"),
            Self::Kubernetes => include_str!("../../upstream/kubernetes/go.mod"),
            Self::Kwok => include_str!("../../upstream/kwok/go.mod"),
            Self::Containerd => include_str!("../../upstream/containerd/go.mod"),
        }
    }

    pub(super) fn go_sum(self) -> &'static str {
        match self {
            Self::Etcd => include_str!("../../upstream/etcd/go.sum"),
            Self::Kubernetes => include_str!("../../upstream/kubernetes/go.sum"),
            Self::Kwok => include_str!("../../upstream/kwok/go.sum"),
            Self::Containerd => include_str!("../../upstream/containerd/go.sum"),
        }
    }

    /// The version of the upstream project that go.mod pins.
    pub(super) fn version(self) -> &'static str {
        let path = match self {
            Self::Etcd => "go.etcd.io/etcd/server/v3 ",
            Self::Kubernetes => "k8s.io/kubernetes ",
            Self::Kwok => "sigs.k8s.io/kwok ",
            Self::Containerd => "github.com/containerd/containerd/v2 ",
        };
        let required = self.go_mod().lines().find_map(|line| {
            let line = line.trim();
            line.strip_prefix("require ").unwrap_or(line).strip_prefix(path)
        });
        required.and_then(|rest| rest.split_ascii_whitespace().next()).unwrap_or("v0.0.0")
    }

    /// The arguments of `go build`, without output and packages.
    pub(super) fn build_flags(self) -> Vec<String> {
        let version = self.version();
        let mut link = "-s -w".to_owned();
        match self {
            Self::Etcd => {}
            Self::Kubernetes => {
                // Without these the API server calls itself v0.0.0 and clients distrust it.
                let mut numbers = version.trim_start_matches('v').split('.');
                let (major, minor) = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
                for package in ["k8s.io/component-base/version", "k8s.io/client-go/pkg/version"] {
                    for (name, value) in
                        [("gitVersion", version), ("gitMajor", major), ("gitMinor", minor), ("gitTreeState", "clean")]
                    {
                        link.push_str(&format!(" -X {package}.{name}={value}"));
                    }
                }
            }
            Self::Kwok => link.push_str(&format!(" -X sigs.k8s.io/kwok/pkg/consts.Version={version}")),
            Self::Containerd => {
                let bare = version.trim_start_matches('v');
                link.push_str(&format!(" -X github.com/containerd/containerd/v2/version.Version={bare}"));
            }
        }
        let mut flags = vec!["-trimpath".to_owned(), "-ldflags".to_owned(), link];
        if self == Self::Containerd {
            // These need C libraries, and a testbed needs none of them.
            flags.extend(["-tags".to_owned(), "no_btrfs no_devmapper no_zfs".to_owned()]);
        }
        flags
    }

    /// Changes with anything that could change what comes out of a build.
    pub(super) fn hash(self) -> String {
        let mut hasher = Sha256::new();
        for part in [self.go_mod(), self.go_sum(), &self.build_flags().join("\n"), std::env::consts::ARCH] {
            hasher.update(part.len().to_le_bytes());
            hasher.update(part.as_bytes());
        }
        hex(&hasher.finalize())[..16].to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pinned_versions_are_those_we_accept() {
        for binary in [Binary::Etcd, Binary::Kubelet, Binary::Kwok, Binary::Ctr] {
            let version = binary.module().version();
            assert!(version.contains(binary.version_prefix()), "{version}");
        }
    }

    #[test]
    fn each_set_has_a_hash_of_its_own() {
        let sets = [Module::Etcd, Module::Kubernetes, Module::Kwok, Module::Containerd];
        let hashes: std::collections::HashSet<_> = sets.into_iter().map(Module::hash).collect();
        assert_eq!(hashes.len(), sets.len());
        assert_eq!(Module::Etcd.hash(), Module::Etcd.hash());
    }
}

//! A local cluster, as `dapple up` and `dapple status` show it.

use std::fmt;

use serde::Serialize;

/// What runs, where to find it, and how it is doing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterView {
    /// Name of the local cluster.
    pub name: String,
    /// Kubernetes version, as its API server tells it; `None` if it does not answer.
    pub kubernetes: Option<String>,
    /// Address of the API server.
    pub api: String,
    /// Kubeconfig of its administrator.
    pub kubeconfig: String,
    /// Folder of the logs.
    pub logs: String,
    /// Every process.
    pub processes: Vec<ProcessView>,
    /// Its nodes; `None` if the API server does not say.
    pub nodes: Option<NodesView>,
    /// Its NodeGroups, by name.
    pub groups: Vec<GroupView>,
    /// The manager that leads; `None` while none does.
    pub leader: Option<String>,
    /// Where the manager serves health and metrics.
    pub health: Option<String>,
}

/// A process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProcessView {
    /// What it is.
    pub name: String,
    /// Its process id.
    pub pid: i32,
    /// Whether it runs.
    pub alive: bool,
}

/// Nodes, counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct NodesView {
    /// All of them.
    pub total: usize,
    /// Those that are ready.
    pub ready: usize,
}

/// A NodeGroup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GroupView {
    /// Its name.
    pub name: String,
    /// How many nodes it contains; `None` before the controller has looked.
    pub nodes: Option<i32>,
}

impl ClusterView {
    /// Whether everything runs that should.
    pub fn is_well(&self) -> bool {
        let all_alive = self.processes.iter().all(|process| process.alive);
        let all_ready = self.nodes.is_some_and(|nodes| nodes.ready == nodes.total);
        all_alive && self.kubernetes.is_some() && self.leader.is_some() && all_ready
    }
}

impl fmt::Display for ClusterView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = |name: &str, text: &str| writeln!(f, "  {name:<11} {text}");
        let version = self.kubernetes.as_deref().unwrap_or("not answering");
        line("cluster", &format!("{}: Kubernetes {version} at {}", self.name, self.api))?;
        let nodes = self.nodes.map(|nodes| format!("{} of {} ready", nodes.ready, nodes.total));
        line("nodes", nodes.as_deref().unwrap_or("not known: the API server does not say"))?;
        let groups: Vec<String> = self.groups.iter().map(GroupView::to_string).collect();
        line("groups", if groups.is_empty() { "none".to_owned() } else { groups.join(", ") }.as_str())?;
        line("leader", self.leader.as_deref().unwrap_or("none: no manager holds the lease"))?;
        if let Some(health) = &self.health {
            line("metrics", &format!("http://{health}/metrics"))?;
        }
        line("kubeconfig", &self.kubeconfig)?;
        line("logs", &self.logs)?;
        let dead: Vec<&str> = self.processes.iter().filter(|is| !is.alive).map(|is| is.name.as_str()).collect();
        if !dead.is_empty() {
            line("ended", &format!("{}; the logs say why", dead.join(", ")))?;
        }
        Ok(())
    }
}

impl fmt::Display for GroupView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.nodes {
            Some(count) => write!(f, "{} ({count})", self.name),
            None => write!(f, "{} (not looked at yet)", self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view() -> ClusterView {
        ClusterView {
            name: "default".into(),
            kubernetes: Some("v1.36.3".into()),
            api: "https://127.0.0.1:6443".into(),
            kubeconfig: "/k".into(),
            logs: "/l".into(),
            processes: vec![ProcessView { name: "etcd".into(), pid: 1, alive: true }],
            nodes: Some(NodesView { total: 60, ready: 60 }),
            groups: vec![
                GroupView { name: "beijing".into(), nodes: Some(20) },
                GroupView { name: "hangzhou".into(), nodes: None },
            ],
            leader: Some("me".into()),
            health: Some("127.0.0.1:9440".into()),
        }
    }

    #[test]
    fn it_reads_well() {
        let text = view().to_string();
        let expected = "  cluster     default: Kubernetes v1.36.3 at https://127.0.0.1:6443
  nodes       60 of 60 ready
  groups      beijing (20), hangzhou (not looked at yet)
  leader      me
  metrics     http://127.0.0.1:9440/metrics
  kubeconfig  /k
  logs        /l
";
        assert_eq!(text, expected);
    }

    #[test]
    fn what_is_not_known_is_not_none() {
        let silent = ClusterView { nodes: None, ..view() };
        assert!(!silent.is_well());
        assert!(silent.to_string().contains("nodes       not known: the API server does not say"));
    }

    #[test]
    fn what_is_wrong_shows() {
        let mut sick = view();
        assert!(sick.is_well());
        sick.processes[0].alive = false;
        sick.leader = None;
        assert!(!sick.is_well());
        let text = sick.to_string();
        assert!(text.contains("ended       etcd; the logs say why") && text.contains("no manager holds the lease"));
        assert_eq!(serde_json::to_value(&sick).expect("it serialises")["processes"][0]["alive"], false);
    }
}

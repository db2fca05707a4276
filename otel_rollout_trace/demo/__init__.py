"""A small asynchronous GRPO training, as an example of a training loop that is traced.

A softmax policy learns to go on with patterns of letters. It is real: tokens are
sampled one by one, answers are checked, the policy gradient is written out in
NumPy, and rollouts and training run side by side, so that tokens are off-policy
and refits cut through running calls. It is small: thirty steps take half a minute.

To see how a training loop is instrumented, read `rollouts` and `training`: what
they call of this package is ``emit``, `RefitCuts` and ``flush``, as yours would.

| module | what it is |
| --- | --- |
| `task` | prompts, and the reward of an answer |
| `policy` | the policy, and the GRPO update |
| `engine` | what generates: attempts, token by token, across refits |
| `rollouts` | groups: what is generated, tried again, given up |
| `training` | the replay buffer, steps and refits |
| `checkpoint` | what is saved, and how a run goes on from it |
| `run` | one process that trains |
| `main` | the demo: what starts it, and once more after a kill |
| `pace` | an event loop whose time can be sped up, and runs the same each time |
| `display`, `links` | what people see |
"""

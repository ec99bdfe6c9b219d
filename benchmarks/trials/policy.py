"""Proximal policy optimization of a small policy in a world of points that lives on the CPU."""

import torch
from torch import nn

torch.manual_seed(0)
worlds, horizon, epochs, parts = 64, 32, 4, 4
actor = nn.Sequential(nn.Linear(24, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 6)).cuda()
critic = nn.Sequential(nn.Linear(24, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 1)).cuda()
optimizer = torch.optim.Adam([*actor.parameters(), *critic.parameters()], lr=3e-4, foreach=False)
state = torch.randn(worlds, 24)
while True:
    seen, acted, likely, valued, rewards = [], [], [], [], []
    for _ in range(horizon):
        with torch.no_grad():
            given = state.cuda()
            choice = torch.distributions.Categorical(logits=actor(given))
            action = choice.sample()
            value = critic(given)[:, 0]
        seen.append(given)
        acted.append(action)
        likely.append(choice.log_prob(action))
        valued.append(value)
        state = 0.9 * state + 0.1 * torch.randn(worlds, 24) + 0.01 * action.cpu().float()[:, None]
        rewards.append(-state.square().mean(1).cuda())
    returns, total = [], torch.zeros(worlds, device="cuda")
    for reward in reversed(rewards):
        total = reward + 0.99 * total
        returns.append(total)
    x, a, old = torch.cat(seen), torch.cat(acted), torch.cat(likely)
    target = torch.cat(returns[::-1])
    advantage = target - torch.cat(valued)
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    for _ in range(epochs):
        for part in torch.randperm(len(x), device="cuda").chunk(parts):
            choice = torch.distributions.Categorical(logits=actor(x[part]))
            ratio = (choice.log_prob(a[part]) - old[part]).exp()
            gain = torch.min(ratio * advantage[part], ratio.clamp(0.8, 1.2) * advantage[part])
            loss = -gain.mean() + 0.5 * (critic(x[part])[:, 0] - target[part]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(actor.parameters(), 0.5)
            optimizer.step()

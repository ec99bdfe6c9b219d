"""A small training script as a stranger writes one, whose loader is slow."""

PROGRAM = """
import time, torch
torch.manual_seed(0)
class Data(torch.utils.data.Dataset):
    def __len__(self): return 100_000
    def __getitem__(self, i):
        if torch.utils.data.get_worker_info() is None: time.sleep(0.02)  # a worker wins surely, on any machine
        return torch.full((16,), i % 7 / 7.0), torch.tensor(i % 10)
model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Tanh(), torch.nn.Linear(16, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, foreach=False)
STEPS = 20_000
for number, (x, y) in enumerate(torch.utils.data.DataLoader(Data(), batch_size=4)):
    optimizer.zero_grad(set_to_none=False)
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    if number < 4: print("loss", loss.item(), flush=True)
    if number > STEPS: break
"""

"""A ResNet-50 of timm with its optimizer and moving average; the loss is read every step, as its log does."""

import timm
import torch
from timm.utils import AverageMeter, ModelEmaV3, accuracy

torch.manual_seed(42)
model = timm.create_model("resnet50", num_classes=100).cuda()
model_ema = ModelEmaV3(model, decay=0.9998)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=2e-5, nesterov=True)
train_loss_fn = torch.nn.CrossEntropyLoss(label_smoothing=0.1).cuda()


class Pictures(torch.utils.data.Dataset):
    def __init__(self):
        self.stored = torch.randint(0, 256, (64, 3, 192, 192), dtype=torch.uint8)

    def __len__(self):
        return 1 << 20

    def __getitem__(self, at):
        top, left = at * 7 % 32, at * 13 % 32
        picture = self.stored[at % 64, :, top : top + 160, left : left + 160]
        return (picture.flip(2) if at % 2 else picture).float() / 255, at % 100


losses_m, top1_m = AverageMeter(), AverageMeter()
for image, label in torch.utils.data.DataLoader(Pictures(), batch_size=64, num_workers=4, pin_memory=True):
    images, target = image.cuda(non_blocking=True), label.cuda(non_blocking=True)
    output = model(images)
    loss = train_loss_fn(output, target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    model_ema.update(model)
    losses_m.update(loss.item(), images.size(0))
    top1_m.update(accuracy(output, target, topk=(1,))[0].item(), images.size(0))
